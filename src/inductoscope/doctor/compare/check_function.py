"""Checks one function: `inductoscope.check(f, *args)`, `inductoscope.assert_same(f, *args)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._pytree import tree_flatten, tree_unflatten

from inductoscope.doctor.compare.bug_or_rounding import comparison_of_metadata, judge
from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.random_numbers import draws_random_numbers
from inductoscope.doctor.compare.tensor_metadata import OutputDifference
from inductoscope.doctor.compare.values import run
from inductoscope.vocabulary.counting import count_of

TORCH_NAMES = {
    "torch._inductor.config": ("patch",),
    "torch.nn.utils.stateless": ("_reparametrize_module",),
    "torch.utils._pytree": ("tree_flatten", "tree_unflatten"),
}


_OTHER_NUMBERS = (
    "values differ, but were not judged: it draws random numbers, and may have been compiled "
    "before to draw others than eager"
)


@dataclass(frozen=True)
class CheckResult:
    """Whether a compiled function does what it does in eager; true if so.

    `differences` are the compiler's fault, `explained` ones are not: `reason` says why. `notes` are
    differences in strides and shared memory, with which every value still agrees.
    """

    differences: tuple[OutputDifference, ...]
    explained: tuple[OutputDifference, ...]
    reason: str
    values: int
    notes: tuple[OutputDifference, ...] = ()

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self.differences:
            return "\n".join(difference.text for difference in self.differences)
        text = f"compiled and eager agree ({count_of(self.values, 'value')})"
        text = f"{text}; {self.reason}" if self.reason else text
        return "\n".join([text, *(f"note: {note.text}" for note in self.notes)])


def check(
    function: Callable[..., Any],
    *arguments: Any,
    compiled: Callable[..., Any] | None = None,
    backward: bool | None = None,
    **options: Any,
) -> CheckResult:
    """Compile `function`, run it and eager on copies of the arguments, and compare.

    Outputs, gradients, written inputs, types and shapes are compared; values are judged against
    float64; strides and shared memory that differ are noted. The parameters and buffers of a module
    count as arguments, and stay as they are. `compiled` is a compiled function to judge instead;
    `backward` forces gradients on or off; other options go to `torch.compile`. An exception of the
    compiler, or of the function itself, is raised as it is.
    """
    leaves, flat = _flattened(function, arguments)
    with_gradients = torch.is_grad_enabled() and any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves
    )
    backward = with_gradients if backward is None else backward
    eager = flat(function)
    case = Case(eager, leaves, backward)
    case.eager  # noqa: B018  What eager raises is for the caller to handle.
    with _same_random_numbers():
        candidate = torch.compile(eager, **options) if compiled is None else flat(compiled)
        outcome = run(candidate, leaves, backward=backward)
    comparison = judge(case, outcome)
    if comparison.wrong and compiled is not None and draws_random_numbers(eager, leaves):
        metadata = comparison_of_metadata(case.eager, outcome)
        comparison = replace(metadata, explained=comparison.wrong, reason=_OTHER_NUMBERS)
    return CheckResult(
        comparison.wrong,
        comparison.explained,
        comparison.reason,
        comparison.values,
        comparison.noted,
    )


Flat = Callable[[Callable[..., Any]], Callable[..., Any]]


def _flattened(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[list[Any], Flat]:
    """All tensors that a call reads, and what turns a function into one of only them."""
    state = _state(function)
    leaves, form = tree_flatten(arguments)

    def flat(call: Callable[..., Any]) -> Callable[..., Any]:
        def function_of_leaves(*values: Any) -> Any:
            given = tree_unflatten(list(values[len(state) :]), form)
            if not state:
                return call(*given)
            own = dict(zip(state, values, strict=False))
            if isinstance(call, torch.nn.Module):
                return torch.func.functional_call(call, own, given)
            with _reparametrize_module(function, own):  # A function that uses the module.
                return call(*given)

        return function_of_leaves

    return [*state.values(), *leaves], flat


def _state(function: Any) -> dict[str, torch.Tensor]:
    if not isinstance(function, torch.nn.Module):
        return {}
    return {**dict(function.named_parameters()), **dict(function.named_buffers())}


def assert_same(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Raise an AssertionError that says what differs, if the compiled function differs."""
    result = check(function, *arguments, **options)
    if not result:
        raise AssertionError(f"compiled and eager differ:\n{result}")


def _same_random_numbers() -> Any:
    from torch._inductor import config

    return config.patch(fallback_random=True)
