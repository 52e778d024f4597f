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

    def __init__(self) -> None:
        self._going_on: list[_BackwardPass] = []

    def follow(self, result: Any, started: Callable[[], Any], ended: Callable[[Any], None]) -> None:
        """Call `started` when its backward pass begins, and `ended` with what that returned.

        `ended` is called only if the pass is its own. Of work on a GPU, the first stream that is
        current in `started` and the last one in `ended` are those that the pass uses: autograd sets
        the one of the forward pass, and at the end waits for all of them.
        """
        from torch._dynamo import config

        if config.compiled_autograd:
            return  # It would compile what is hooked in here.
        found = _BackwardPass(self._going_on, started, ended)
        for function in dict.fromkeys(_gradient_functions(result, 0)):
            SCOPE.guard(function.register_prehook, found.reached)


class _BackwardPass:
    def __init__(
        self,
        going_on: list[_BackwardPass],
        started: Callable[[], Any],
        ended: Callable[[Any], None],
    ) -> None:
        self._going_on, self._started, self._ended = going_on, started, ended
        self._has_begun = False
        self._is_alone = True
        # What `started` returned.
        self._beginning: Any = None

    def reached(self, gradients: Any) -> None:
        """Autograd is about to differentiate one of the results."""
        if not self._has_begun:
            SCOPE.guard(self._begin)

    def _begin(self) -> None:
        from torch.autograd import Variable

        for other in self._going_on:
            other._is_alone = self._is_alone = False
        self._has_begun = True
        self._going_on.append(self)
        Variable._execution_engine.queue_callback(self._end)
        self._beginning = self._started()

    def _end(self) -> None:
        if self in self._going_on:
            self._going_on.remove(self)
            if self._is_alone:
                SCOPE.guard(self._ended, self._beginning)


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
