"""Inside the program: a call is over when its backward pass is.

A backward pass begins when autograd reaches the first result of the call, and ends with the whole
pass that it belongs to: what comes after it there is the same, compiled or not. Of several calls in
one pass it is not known which took how long, so none of them counts.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from inductoscope.capture.scope import SCOPE

TORCH_NAMES = {
    "torch._dynamo.config": ("compiled_autograd",),
    "torch.autograd": ("Variable._execution_engine.queue_callback",),
}

# How deep results are searched for tensors.
_DEPTH = 4


class BackwardPasses:
    """The backward passes of calls whose results are differentiated."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._going_on: list[_BackwardPass] = []

    def follow(self, result: Any, ended: Callable[[int], None]) -> None:
        """Call `ended` with the nanoseconds of its backward pass, if it has one of its own."""
        from torch._dynamo import config

        if config.compiled_autograd:
            return  # It would compile what is hooked in here.
        found = _BackwardPass(self._clock, self._going_on, ended)
        for function in dict.fromkeys(_gradient_functions(result, 0)):
            SCOPE.guard(function.register_prehook, found.reached)


class _BackwardPass:
    def __init__(
        self,
        clock: Callable[[], int],
        going_on: list[_BackwardPass],
        ended: Callable[[int], None],
    ) -> None:
        self._clock, self._going_on, self._ended = clock, going_on, ended
        self._begun: int | None = None
        self._is_alone = True

    def reached(self, gradients: Any) -> None:
        """Autograd is about to differentiate one of the results."""
        if self._begun is None:
            SCOPE.guard(self._begin)

    def _begin(self) -> None:
        from torch.autograd import Variable

        for other in self._going_on:
            other._is_alone = self._is_alone = False
        self._begun = self._clock()
        self._going_on.append(self)
        Variable._execution_engine.queue_callback(self._end)

    def _end(self) -> None:
        if self in self._going_on:
            self._going_on.remove(self)
            if self._is_alone and self._begun is not None:
                SCOPE.guard(self._ended, self._clock() - self._begun)


def _gradient_functions(result: Any, depth: int) -> Iterator[Any]:
    """The nodes of autograd's graph that made the tensors of a result."""
    torch: Any = sys.modules["torch"]
    if isinstance(result, torch.Tensor):
        if result.grad_fn is not None:
            yield result.grad_fn
        return
    if depth >= _DEPTH:
        return
    if isinstance(result, Mapping):
        parts = list(result.values())
    elif isinstance(result, (list, tuple)):
        parts = list(result)
    else:
        parts = list(getattr(result, "__dict__", {}).values())
    for part in parts:
        yield from _gradient_functions(part, depth + 1)
