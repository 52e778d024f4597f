"""Inside the program: what torch allocates and frees while it is traced, on every device.

torch's allocators report to torch.profiler. On the CPU they know the size of a block only if it was
allocated while they kept a table, which a switch in torch's library keeps from its import on.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inductoscope.profiling.memory.observed import AllocationEvent
from inductoscope.profiling.torch_profiler import used_by_the_tool

TORCH_NAMES = {
    "torch._C": ("_current_graph_task_id",),
    "torch._C._profiler": ("_EventType", "_RecordFunctionFast"),
}

_SWITCH = "FLAGS_caffe2_report_cpu_memory_usage"
# Moments that both clocks know.
_BEGUN, _ENDED = "inductoscope: trace begun", "inductoscope: trace ended"


def keep_table() -> bool:
    """Have the CPU allocator remember the size of every block; False if it cannot be told to."""
    import torch

    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so")
    with contextlib.suppress(OSError, ValueError):
        ctypes.c_bool.in_dll(ctypes.CDLL(path), _SWITCH).value = True
        return True
    return False


class AllocationTrace:
    """A trace that is under way, on the thread that began it.

    Its times are those of the monotonic clock. The profiler's follow the system's clock, which may
    be set meanwhile; two moments that are known by both clocks say how far.
    """

    def __init__(self, profiler: Any) -> None:
        self._profiler = profiler
        self.begun = _mark(_BEGUN)

    def end(self) -> None:
        """End the trace, and read nothing of it."""
        with used_by_the_tool():
            self._profiler.stop()

    def stop(self) -> tuple[AllocationEvent, ...]:
        """End the trace; what was allocated and freed, in the order of time."""
        ended = _mark(_ENDED)
        self.end()
        tree = self._profiler.profiler.kineto_results.experimental_event_tree()
        found, marks = _read(tree)
        if len(marks) < 2:
            return ()
        first, last = marks[_BEGUN], marks[_ENDED]

        def on_clock(at: int) -> int:
            return self.begun + (at - first) * (ended - self.begun) // ((last - first) or 1)

        timed = (replace(event, at=on_clock(event.at)) for event in found)
        return tuple(sorted(timed, key=lambda event: event.at))


def _mark(name: str) -> int:
    """Put a mark into the trace; when that was."""
    from torch._C._profiler import _RecordFunctionFast

    with _RecordFunctionFast(name):
        return time.monotonic_ns()


def start_trace() -> AllocationTrace:
    """Begin to trace."""
    import torch

    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    )
    with used_by_the_tool():
        profiler.start()
    return AllocationTrace(profiler)


def is_in_backward() -> bool:
    """Whether autograd runs on this thread: what is then switched off, it switches on again."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def _read(tree: Sequence[Any]) -> tuple[list[AllocationEvent], dict[str, int]]:
    """What was allocated and freed, and when the marks were made, by the profiler's clock."""
    from torch._C._profiler import _EventType

    found, marks = [], {}
    # Without recursion: a program may nest deeper than Python allows.
    left = [(event, "") for event in tree]
    while left:
        event, operation = left.pop()
        kind, fields = event.typed
        if kind == _EventType.Allocation:
            found.append(
                AllocationEvent(
                    event.start_time_ns,
                    fields.ptr,
                    fields.alloc_size,
                    fields.total_allocated,
                    str(fields.device),
                    operation,
                )
            )
        if kind == _EventType.TorchOp:
            operation = event.name
            if operation in (_BEGUN, _ENDED):
                marks[operation] = event.start_time_ns
        left += [(child, operation) for child in event.children]
    return found, marks
