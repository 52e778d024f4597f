"""An exported program as a graph whose weights are inputs, like those that Dynamo captures."""

from __future__ import annotations

import torch

from inductoscope.doctor.compare.graphs import as_function, input_names
from inductoscope.doctor.compare.lifted_attributes import lifted


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


def test_a_program_that_changes_its_own_buffers_leaves_them_alone() -> None:
    """Eager runs it several times; each run has to find what the package found."""
    x = torch.zeros(2)
    found = lifted(exported(Counting(), x))
    assert found.changes_itself
    for _ in range(2):
        (result,) = as_function(found.module)(x, *found.attributes.values())
        assert result.tolist() == [1.0, 1.0]
    assert [float(value) for value in found.attributes.values()] == [0.0]


def test_results_that_are_no_tensors_are_left_out() -> None:
    """A package returns only tensors."""

    class Named(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor | int | None]:
            return {"none": None, "twice": x * 2, "count": 3}

    x = torch.ones(2)
    found = lifted(exported(Named(), x))
    assert len(as_function(found.module)(x)) == 1
