"""Times of compiled calls, as a process of the program writes them and the tool reads them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.profiling.statistics import Sample
from inductoscope.recording.codec import decode, encode
from inductoscope.recording.layout import PROFILE

# In the folder of a run; one file per process that made a compiled call.
FOLDER = PROFILE
TIMES_SUFFIX = ".times.json"

# What a call was of.
FUNCTION, GRAPH, PACKAGE = "function", "graph", "package"


@dataclass(frozen=True)
class CallTimes:
    """The outermost calls of one compiled function, graph or package; times in nanoseconds."""

    name: str
    kind: str
    # The user's line where it is defined, or the file of a package.
    place: str = ""
    # Calls that did no more than run, after one more that warmed up: how many, and of these some
    # chosen at random.
    count: int = 0
    total: int = 0
    sample: tuple[int, ...] = ()
    # Calls in which something was compiled, and the first after each.
    compiling: tuple[int, ...] = ()
    warming: tuple[int, ...] = ()
    # Calls during which the clock went backwards.
    dropped: int = 0
    # Which calls these are, where the calls of one function are told apart by their arguments.
    group: str = ""

    @property
    def seconds(self) -> Sample:
        """The calls that did no more than run."""
        return Sample(tuple(value / 1e9 for value in self.sample))


@dataclass(frozen=True)
class ProcessTimes:
    """What one process of the program measured."""

    pid: int
    calls: tuple[CallTimes, ...] = ()
    # Threads that torch used for one operation.
    threads: int = 0
    torch: str = ""
    # Whether calls were timed on a GPU, each until the GPU had done its work.
    waited_for_gpu: bool = False
    # From the first call to the end of the last, without those that compiled; 0 if not measured.
    span: int = 0
    # Why a change that was asked for could not be made; empty if it was made.
    not_applied: str = ""
    # Whether several threads called compiled functions, where that keeps calls from being compared.
    several_threads: bool = False
    # Settings that were tried: the values that they had when the program ended.
    settings: Mapping[str, str] = field(default_factory=dict)


def write_times(times: ProcessTimes, folder: Path) -> None:
    """Write them so that a reader sees the old file or the new one, never a part."""
    path = folder / f"{times.pid}{TIMES_SUFFIX}"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(encode(times)), "utf-8")
    unfinished.replace(path)


def read_times(folder: Path) -> tuple[ProcessTimes, ...]:
    """The times of all processes of a run; what is damaged is left out."""
    found = []
    for path in sorted(folder.glob(f"*{TIMES_SUFFIX}")):
        with contextlib.suppress(OSError, ValueError):
            found.append(decode(ProcessTimes, json.loads(path.read_text("utf-8"))))
    return tuple(found)


def all_calls(processes: Sequence[ProcessTimes]) -> tuple[CallTimes, ...]:
    """The calls of all processes, those of the same thing together."""
    found: dict[tuple[str, str, str, str], CallTimes] = {}
    for calls in (calls for process in processes for calls in process.calls):
        key = calls.kind, calls.name, calls.place, calls.group
        found[key] = _together(found[key], calls) if key in found else calls
    return tuple(found.values())


def _together(first: CallTimes, second: CallTimes) -> CallTimes:
    return CallTimes(
        first.name,
        first.kind,
        first.place,
        first.count + second.count,
        first.total + second.total,
        first.sample + second.sample,
        first.compiling + second.compiling,
        first.warming + second.warming,
        first.dropped + second.dropped,
        first.group,
    )


# --- Times of kernels, as a process of the program writes them and the tool reads them ------------
#
# A graph with sizes that vary has its times kept apart for each set of sizes.

KERNELS_SUFFIX = ".kernels.json"

# How the times were measured.
CLOCK = "clock"  # around every kernel call of the wrapper
PROFILER = "profiler"  # by torch.profiler: on the GPU itself, or in a C++ wrapper
EVENTS = "events"  # between two CUDA events
WHOLE = "whole"  # the whole graph alone

PRODUCTS, CONVOLUTIONS = "products", "convolutions"

# Sets of sizes of one graph that are kept apart.
MOST_SIZES = 16


@dataclass(frozen=True)
class SiteTimes:
    """One line of a wrapper that calls a kernel; times in nanoseconds."""

    line: int
    kernel: str
    count: int = 0
    total: int = 0
    sample: tuple[int, ...] = ()
    # In a C++ wrapper the line is not known: how many calls of the same name come before it.
    occurrence: int = 0

    @property
    def seconds(self) -> Sample:
        """The calls after the first one."""
        return Sample(tuple(value / 1e9 for value in self.sample))


@dataclass(frozen=True)
class KernelSpan:
    """One call of a kernel, from the beginning of the wrapper's call on; in nanoseconds."""

    line: int
    kernel: str
    start: int
    duration: int


@dataclass(frozen=True)
class WholeCall:
    """One call of a wrapper as it was, with its kernels in the order in which they ran."""

    duration: int
    kernels: tuple[KernelSpan, ...] = ()


@dataclass(frozen=True)
class GraphTimes:
    """The calls of one wrapper with one set of sizes; times in nanoseconds."""

    # The file of the wrapper.
    path: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    how: str = CLOCK
    device: str = "cpu"
    # All calls, and of those after the first the times of the whole wrapper.
    calls: int = 0
    sample: tuple[int, ...] = ()
    # The time of a call in which no kernel runs: see `what_is_between`.
    between: tuple[int, ...] = ()
    # The first call, which nothing else may follow.
    first: int = 0
    sites: tuple[SiteTimes, ...] = ()
    # Threads of the program that called it.
    threads: int = 1
    # Calls with sizes beyond the most that are kept apart.
    other_sizes: int = 0
    # A call that took about as long as most.
    usual: WholeCall | None = None
    # Operations on float32 that torch was allowed to do in TF32: of PRODUCTS, CONVOLUTIONS.
    in_tf32: tuple[str, ...] = ()

    @property
    def seconds(self) -> Sample:
        """The whole wrapper: kernels, and what is between them."""
        return Sample(tuple(value / 1e9 for value in self.sample))

    @property
    def seconds_between(self) -> Sample:
        """The time of a call in which no kernel runs."""
        return Sample(tuple(value / 1e9 for value in self.between))


def what_is_between(device: str, how: str) -> str:
    """What a call does while none of its kernels runs."""
    if device != "cpu":
        return "gaps on the device"
    # On the CPU, wrappers in C++ are traced; those in Python look at the clock themselves.
    return f"allocations and {'C++ code' if how == PROFILER else 'Python'}"


@dataclass(frozen=True)
class KernelTimes:
    """What one process measured."""

    pid: int
    graphs: tuple[GraphTimes, ...] = ()
    # Why something could not be measured as it should.
    notes: tuple[str, ...] = ()


def write_kernel_times(times: KernelTimes, folder: Path) -> None:
    """Write them so that a reader sees the old file or the new one, never a part."""
    path = folder / f"{times.pid}{KERNELS_SUFFIX}"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(encode(times)), "utf-8")
    unfinished.replace(path)


def read_kernel_times(folder: Path) -> tuple[KernelTimes, ...]:
    """The times of all processes of a run; what is damaged is left out."""
    found = []
    for path in sorted(folder.glob(f"*{KERNELS_SUFFIX}")):
        with contextlib.suppress(OSError, ValueError):
            found.append(decode(KernelTimes, json.loads(path.read_text("utf-8"))))
    return tuple(found)
