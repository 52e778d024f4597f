"""torch's profiler inside the program: whether the tool uses it, or the program itself.

Of two profilers the first that ends would end the other one, too, on whatever thread. So the tool
uses it only while the program does not, and makes way when the program begins to.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

from inductoscope.inside.scope import SCOPE
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, TorchName, Wrap

# Seconds that a profiler of the program's waits for another thread to end ours.
LONGEST_WAIT = 5.0

# Every profiler of torch's begins and ends by these, whether it was prepared first or not.
_BEGINS = tuple(
    TorchName("torch.autograd.profiler", name) for name in ("_prepare_profiler", "_enable_profiler")
)
_ENDS = hooked.DISABLE_PROFILER


class _OwnUse(threading.local):
    is_used = False


_OWN = _OwnUse()


@contextlib.contextmanager
def used_by_the_tool() -> Iterator[None]:
    """A profiler that begins or ends in here is not the program's."""
    _OWN.is_used = True
    try:
        yield
    finally:
        _OWN.is_used = False


def is_traced_here() -> bool:
    """Whether a profiler, ours or the program's, sees what this thread does."""
    import torch

    return bool(torch.autograd._profiler_enabled())


class ProgramProfilers:
    """Follows the profilers of the program's own, on all its threads."""

    def __init__(self, make_way: Callable[[], None] = lambda: None) -> None:
        """`make_way` ends the tool's profiler, just before one of the program's begins."""
        self._make_way = make_way
        # Whether one is prepared or runs, on any thread.
        self.are_used = False

    @property
    def leave_it_free(self) -> bool:
        """Whether the tool may use torch's profiler on this thread."""
        return not self.are_used and not is_traced_here()

    @property
    def hook(self) -> Hook:
        """The hook by which torch says when one begins, and when it ends."""
        return Hook(
            stage=stages.RUNTIME,
            records="when the program uses torch's profiler, which then is not disturbed",
            wraps=(*(Wrap(name, self._before) for name in _BEGINS), Wrap(_ENDS, self._after)),
        )

    def _before(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def begin(*args: Any, **kwargs: Any) -> Any:
            if not _OWN.is_used:
                # First the flag: the tool begins none from now on.
                self.are_used = True
                SCOPE.guard(self._make_way)
            return original(*args, **kwargs)

        return begin

    def _after(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def end(*args: Any, **kwargs: Any) -> Any:
            try:
                return original(*args, **kwargs)
            finally:
                if not _OWN.is_used:
                    self.are_used = False

        return end
