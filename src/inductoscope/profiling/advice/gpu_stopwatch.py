"""What a call costs a program that does not wait for the GPU.

Such a program enqueues work while the GPU is still busy with earlier calls, so that a call costs
whatever takes longer: to enqueue its kernels, or to run them. Both are measured in one call: the
GPU is given an idle kernel first, and cannot begin before everything is enqueued.

A call that itself waits for the GPU waits for the idle kernel too. Such calls are timed from
beginning to end.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

TORCH_NAMES = {
    "torch.cuda": ("_sleep",),
}

# Cycles for which the GPU is kept idle: about half a millisecond at first. If a call takes longer
# to enqueue than even the longest, it is taken for one that waits.
_SHORTEST, _LONGEST = 1 << 20, 1 << 26
_GROWTH = 4
# The time of a call that began to run while it was still being enqueued says nothing.
NOT_MEASURED = -1


@dataclass
class _StartedCall:
    began: int
    # None for a call that is timed from beginning to end.
    released: Any = None


class GpuStopwatch:
    """Times calls on the current stream; a call belongs to a thing, which says how to time it."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._cycles: dict[Hashable, int] = {}

    def start(self, thing: Hashable) -> _StartedCall:
        """Just before a call."""
        import torch

        torch.cuda.synchronize()
        cycles = self._cycles.setdefault(thing, _SHORTEST)
        if cycles > _LONGEST:
            return _StartedCall(self._clock())
        torch.cuda._sleep(cycles)
        released = torch.cuda.Event(enable_timing=True)
        released.record()
        return _StartedCall(self._clock(), released)

    def stop(self, call: _StartedCall, thing: Hashable, *, compiled: bool = False) -> int:
        """Just after it: nanoseconds that it costs, or `NOT_MEASURED`.

        A call in which something was compiled is timed from beginning to end.
        """
        import torch

        if call.released is None or compiled:
            torch.cuda.synchronize()
            return self._clock() - call.began
        enqueued = self._clock() - call.began
        began_early = call.released.query()
        done = torch.cuda.Event(enable_timing=True)
        done.record()
        torch.cuda.synchronize()
        if began_early:
            self._cycles[thing] *= _GROWTH
            return NOT_MEASURED
        milliseconds: float = call.released.elapsed_time(done)
        return max(enqueued, round(milliseconds * 1e6))
