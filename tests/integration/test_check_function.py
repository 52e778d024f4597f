"""`inductoscope.check` and `inductoscope.assert_same`: one function, compiled and in eager."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch._inductor.utils import fresh_cache

import inductoscope
from support.graphs import numbers

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def _private_cache() -> Iterator[None]:
    """Kernels are compiled into a folder of this test's own, in this process."""
    with fresh_cache(), torch._inductor.config.patch(compile_threads=1):
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()


# --- with the real compiler -----------------------------------------------------------------------


def training_step(x: torch.Tensor, state: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
    """Writes to an input, draws random numbers, gives a view."""
    state["steps"].add_(1)
    noisy = x * state["weight"] + torch.rand_like(x)
    return noisy.relu().sum(dim=0), x.t()


@pytest.mark.usefixtures("_private_cache")
def test_a_function_that_is_compiled_rightly() -> None:
    x, state = numbers(8, 4), {"weight": numbers(4).requires_grad_(), "steps": torch.zeros(1)}
    result = inductoscope.check(training_step, x, state)
    assert result, str(result)
    # Two outputs, a gradient, and three inputs as the call left them.
    assert result.values == 6
    assert str(result).startswith("compiled and eager agree (6 values)")
    assert state["steps"].item() == 0, "what was given is left alone"
    assert state["weight"].grad is None


def whole_steps(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x // w


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13."), reason="a bug of torch 2.13 is looked for"
)
@pytest.mark.usefixtures("_private_cache")
def test_a_function_that_is_compiled_wrongly() -> None:
    """1.0 // 0.1 is 9, because 0.1 is a little more than a tenth. Inductor rounds 1.0 / 0.1."""
    compiled = torch.compile(whole_steps)
    x, w = torch.tensor([1.0]), torch.tensor([0.1])
    result = inductoscope.check(whole_steps, x, w, compiled=compiled)
    assert not result
    (difference,) = result.differences
    assert (difference.kind, difference.where, difference.largest) == ("value", "output 0", 1.0)
    assert str(result).startswith(difference.text)
    with pytest.raises(AssertionError, match=r"compiled and eager differ:\noutput 0 is 10 at"):
        inductoscope.assert_same(whole_steps, x, w, compiled=compiled)


# --- with a function in the place of the compiled one ---------------------------------------------


def test_assert_same_says_nothing_where_both_agree() -> None:
    inductoscope.assert_same(lambda x: x.sin(), numbers(3), compiled=lambda x: x.sin())


def test_differences_within_rounding_are_told_and_not_held_against_the_compiler() -> None:
    x = numbers(64).bfloat16()

    def eager(x: torch.Tensor) -> torch.Tensor:
        return ((x * 1.1 + 0.3) * x - 0.7) * 3.0

    result = inductoscope.check(eager, x, compiled=lambda x: eager(x.float()).bfloat16())
    assert result
    assert [difference.where for difference in result.explained] == ["output 0"]
    assert str(result) == (
        "compiled and eager agree (2 values); the differences are within rounding"
    )


def test_every_difference_is_told_in_a_line_of_its_own() -> None:
    result = inductoscope.check(
        lambda x: (x + 1, x * 2), numbers(3), compiled=lambda x: (x, (x * 2).double())
    )
    assert not result
    assert len(str(result).splitlines()) == len(result.differences) == 2
    # That output 0 is the input itself changes no value, so it is a note.
    assert [note.where for note in result.notes] == ["output 0"]


def test_arguments_may_be_nested() -> None:
    def function(batch: dict[str, Any], scale: float) -> dict[str, torch.Tensor]:
        first, second = batch["pair"]
        return {"sum": first + second * scale}

    def wrong(batch: dict[str, Any], scale: float) -> dict[str, torch.Tensor]:
        return {"sum": batch["pair"][0] + scale}

    batch = {"pair": (numbers(3), numbers(3) + 1)}
    assert inductoscope.check(function, batch, 2.0, compiled=function)
    assert not inductoscope.check(function, batch, 2.0, compiled=wrong)


def negated_gradient(x: torch.Tensor) -> torch.Tensor:
    return 2 * x.detach() - x


def test_gradients_are_compared_where_an_argument_asks_for_them() -> None:
    x = numbers(3).requires_grad_()
    result = inductoscope.check(lambda x: x * 1, x, compiled=negated_gradient)
    assert [difference.where.split()[0] for difference in result.differences] == ["gradient"]
    assert inductoscope.check(lambda x: x * 1, x, compiled=negated_gradient, backward=False)
    with torch.no_grad():
        assert inductoscope.check(lambda x: x * 1, x, compiled=negated_gradient)


def test_gradients_of_a_modules_weights_are_compared() -> None:
    model = torch.nn.Linear(3, 2)

    def wrong(x: torch.Tensor) -> torch.Tensor:
        return x @ model.weight.detach().t() + model.bias

    assert not inductoscope.check(model, numbers(4, 3), compiled=wrong)


def test_a_module_is_left_as_it_was() -> None:
    model = torch.nn.BatchNorm1d(3)
    assert inductoscope.check(model, numbers(4, 3), compiled=model)
    assert model.num_batches_tracked == 0


def test_what_the_function_itself_raises_is_raised() -> None:
    def broken(x: torch.Tensor) -> torch.Tensor:
        raise ValueError("of the function's own")

    with pytest.raises(ValueError, match="of the function's own"):
        inductoscope.check(broken, numbers(3))


def test_options_go_to_torch_compile() -> None:
    """A backend that is none: the graph is run as it is, and nothing is compiled."""
    seen: list[torch.fx.GraphModule] = []

    def backend(module: torch.fx.GraphModule, examples: Any) -> Any:
        seen.append(module)
        return module.forward

    assert inductoscope.check(lambda x: x.sin(), numbers(3), backend=backend, fullgraph=True)
    assert len(seen) == 1


# --- the name -------------------------------------------------------------------------------------


def test_check_is_there_without_loading_torch() -> None:
    program = (
        "import inductoscope, sys; print(callable(inductoscope.check), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False"]
