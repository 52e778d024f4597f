"""Checks one function: `inductoscope.check(f, *args)`, `inductoscope.assert_same(f, *args)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from inductoscope.check.compare import Case, Difference, judge
from inductoscope.check.values import run


@dataclass(frozen=True)
class CheckResult:
    """Whether a compiled function does what it does in eager; true if so.

    `differences` are held against the compiler, `explained` ones are not: `reason` says why.
    """

    differences: tuple[Difference, ...]
    explained: tuple[Difference, ...]
    reason: str
    values: int

    def __bool__(self) -> bool:
        return not self.differences

    def __str__(self) -> str:
        if self.differences:
            return "\n".join(difference.text for difference in self.differences)
        text = f"compiled and eager agree ({self.values} values)"
        return f"{text}; {self.reason}" if self.reason else text


def check(
    function: Callable[..., Any],
    *arguments: Any,
    compiled: Callable[..., Any] | None = None,
    backward: bool | None = None,
    **options: Any,
) -> CheckResult:
    """Compile `function`, run it and eager on copies of the arguments, and compare.

    Outputs, gradients, written inputs, types, shapes, strides and shared memory are compared;
    values are judged against float64. `compiled` is a compiled function to judge instead;
    `backward` forces gradients on or off; other options go to `torch.compile`. An exception of
    the compiler, or of the function itself, is raised as it is.
    """
    leaves, form = tree_flatten(arguments)

    def flat(call: Callable[..., Any]) -> Callable[..., Any]:
        def function_of_leaves(*values: Any) -> Any:
            return call(*tree_unflatten(list(values), form))

        return function_of_leaves

    with_gradients = torch.is_grad_enabled() and any(
        isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves
    )
    backward = with_gradients if backward is None else backward
    case = Case(flat(function), leaves, backward)
    case.eager  # noqa: B018  What eager raises is the caller's own.
    with _same_random_numbers():
        candidate = torch.compile(function, **options) if compiled is None else compiled
        outcome = run(flat(candidate), leaves, backward=backward)
    judgement = judge(case, outcome)
    return CheckResult(judgement.wrong, judgement.explained, judgement.reason, judgement.values)


def assert_same(function: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Raise an AssertionError that says what differs, if the compiled function differs."""
    result = check(function, *arguments, **options)
    if not result:
        raise AssertionError(f"compiled and eager differ:\n{result}")


def _same_random_numbers() -> Any:
    from torch._inductor import config

    return config.patch(fallback_random=True)
