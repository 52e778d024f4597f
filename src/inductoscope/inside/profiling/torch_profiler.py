"""Arbitration of torch's profiler between the tool and the program.

Of two active profilers, the first that stops also stops the other, on any thread. So the tool
profiles only while the program does not, and stops when the program starts a profiler.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from inductoscope.inside.observe import around
from inductoscope.inside.scope import SCOPE
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

# Seconds that the program's profiler waits for another thread to stop the tool's.
LONGEST_WAIT = 5.0


class _OwnUse(threading.local):
    is_used = False


_OWN = _OwnUse()


@contextlib.contextmanager
def used_by_the_tool() -> Iterator[None]:
    """Mark profilers that start or stop inside the block as the tool's."""
    _OWN.is_used = True
    try:
        yield
    finally:
        _OWN.is_used = False


def is_traced_here() -> bool:
    """Check whether a profiler, the tool's or the program's, is active on this thread."""
    import torch

    return bool(torch.autograd._profiler_enabled())


class ProgramProfilers:
    def __init__(self, make_way: Callable[[], None]) -> None:
        """`make_way` stops the tool's profiler, just before one of the program's starts."""
        self._make_way = make_way
        # Whether a profiler of the program is prepared or running, on any thread.
        self.are_used = False

    @property
    def leave_it_free(self) -> bool:
        """Whether the tool may use torch's profiler on this thread."""
        return not self.are_used and not is_traced_here()

    @property
    def hook(self) -> Hook:
        return Hook(
            stage=stages.RUNTIME,
            records="when the program uses torch's profiler, which then is not disturbed",
            wraps=(
                *(Wrap(name, around(self._begin)) for name in hooked.PROFILER_BEGINS),
                Wrap(hooked.DISABLE_PROFILER, around(self._end)),
            ),
        )

    def _begin(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not _OWN.is_used:
            # The flag is set first, so that the tool starts no profiler from here on.
            self.are_used = True
            SCOPE.guard(self._make_way)
        return original(*args, **kwargs)

    def _end(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        finally:
            if not _OWN.is_used:
                self.are_used = False
