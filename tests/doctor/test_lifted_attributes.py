"""An exported program as a graph whose weights are inputs, like those that Dynamo captures."""

from __future__ import annotations

import pytest
import torch

from inductoscope.inside.compare.graphs import as_function, input_names
from inductoscope.inside.doctor.exported_program import lifted


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.register_buffer("scale", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale


class Counting(torch.nn.Module):
    """Every call finds another count than the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x + self.count


def exported(module: torch.nn.Module, *inputs: torch.Tensor) -> torch.fx.GraphModule:
    return torch.export.export(module, inputs).module(check_guards=False)  # type: ignore[return-value]


def test_weights_come_after_the_inputs_of_the_program() -> None:
    module, x = Scaled(), torch.randn(2, 4)
    found = lifted(exported(module, x))
    assert input_names(found.module) == ["x", "linear_weight", "linear_bias", "scale"]
    assert found.named["linear_weight"] == "linear.weight"
    assert not found.changes_itself
    (result,) = as_function(found.module)(x, *found.attributes.values())
    assert torch.equal(result, module(x))


class Remembering(torch.nn.Module):
    """Writes through a view, as a cache of keys does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(3, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.cache[1:2] = x
        return self.cache.sum() + x


@pytest.mark.parametrize("module", [Counting(), Remembering()], ids=["itself", "through a view"])
def test_a_program_that_changes_its_own_buffers_is_known(module: torch.nn.Module) -> None:
    """No two calls of it are alike, so they are not compared."""
    assert lifted(exported(module, torch.zeros(1, 2))).changes_itself


def test_weights_that_the_program_changes_afterwards_are_noticed() -> None:
    """A package keeps those with which it was made."""
    module = Scaled()
    found = lifted(exported(module, torch.randn(2, 4)))
    assert found.changed_since == ""
    with torch.no_grad():
        module.linear.bias.add_(1)
    assert found.changed_since == "linear.bias"


def test_only_tensors_are_compared() -> None:
    """A package returns numbers as tensors, and None as it is."""

    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | int | None]:
            return {"none": None, "twice": x * 2, "count": 3}

    x = torch.ones(2)
    found = lifted(exported(Named(), x))
    assert found.compared == (1,)
    assert len(as_function(found.module)(x)) == 1
    assert len(found.whole(x)) == 3
