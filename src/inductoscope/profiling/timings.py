"""Measurements as a process of the program writes them and the tool reads them.

Compiled calls, and kernels in calls of generated wrappers. All times are in nanoseconds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from inductoscope.profiling.statistics import Sample
from inductoscope.recording.codec import decode, encode
from inductoscope.recording.layout import PROFILE

# In the folder of a run; each process writes files of its own there.
FOLDER = PROFILE

# Kinds of calls: of a compiled function, of a graph that no function calls, of a package.
FUNCTION, GRAPH, PACKAGE = "function", "graph", "package"
# A compiled function called uncompiled, and one whose result is differentiated: without its
# backward pass it is half of a call.
IN_EAGER, DIFFERENTIATED = "function in eager", "function without its backward pass"

# How kernels were timed: by the clock around every kernel call of the wrapper; by torch.profiler,
# on the GPU itself or in a C++ wrapper; or only the graph as a whole.
CLOCK, PROFILER, WHOLE = "clock", "profiler", "whole"

# Operations on float32 that torch may do in TF32.
PRODUCTS, CONVOLUTIONS = "products", "convolutions"

# Sets of sizes of one graph that are kept apart.
MOST_SIZES = 16

T = TypeVar("T")


# --- compiled calls -------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallTimes:
    """The outermost calls of one compiled function, graph or package."""

    name: str
    kind: str
    # The user's line where it is defined, or the file of a package.
    place: str = ""
    # Calls that did no more than run, after one more that warmed up: how many, their sum, and of
    # these some chosen at random.
    count: int = 0
    total: int = 0
    sample: tuple[int, ...] = ()
    # Calls in which something was compiled, and the first after each.
    compiling: tuple[int, ...] = ()
    warming: tuple[int, ...] = ()
    # Calls whose time could not be measured.
    dropped: int = 0
    # Which calls these are, where the calls of one function are told apart by their arguments.
    group: str = ""

    @property
    def seconds(self) -> Sample:
        """The calls that did no more than run."""
        return in_seconds(self.sample)


@dataclass(frozen=True)
class ProcessTimes:
    """The calls that one process of the program made."""

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


def all_calls(processes: Sequence[ProcessTimes]) -> tuple[CallTimes, ...]:
    """The calls of all processes, those of the same thing together."""
    found: dict[tuple[str, str, str, str], CallTimes] = {}
    for calls in (calls for process in processes for calls in process.calls):
        key = calls.kind, calls.name, calls.place, calls.group
        found[key] = _together(found[key], calls) if key in found else calls
    return tuple(found.values())


def _together(first: CallTimes, second: CallTimes) -> CallTimes:
    same = {"name", "kind", "place", "group"}
    own, other = vars(first), vars(second)
    return CallTimes(
        **{name: own[name] if name in same else own[name] + other[name] for name in own}
    )


# --- kernels --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site:
    """A place in a wrapper that calls a kernel."""

    kernel: str
    # 0 in a C++ wrapper, where a call is known by how many of the same name come before it.
    line: int = 0
    occurrence: int = 0


@dataclass(frozen=True)
class TimedCall:
    """One call of a wrapper, with its kernels in the order in which they ran."""

    duration: int
    # Of each kernel: the number of its site, when it began after the call, how long it took. Work
    # that belongs to no site has the number -1.
    spans: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class GraphTimes:
    """The calls of one wrapper with one set of sizes."""

    # The file of the wrapper, or of a package.
    path: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    how: str = CLOCK
    device: str = "cpu"
    sites: tuple[Site, ...] = ()
    # The first call, which is cold; how many came after it, and of these some chosen at random.
    first: TimedCall | None = None
    count: int = 0
    kept: tuple[TimedCall, ...] = ()
    # Threads of the program that called it.
    threads: int = 1
    # Calls with sizes beyond the most that are kept apart.
    other_sizes: int = 0
    # Of PRODUCTS and CONVOLUTIONS, those that torch was allowed to do in TF32.
    in_tf32: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[TimedCall, ...]:
        """The calls after the first one; that one if there is no other."""
        return self.kept or ((self.first,) if self.first is not None else ())

    @property
    def seconds(self) -> Sample:
        """The whole wrapper: kernels, and the gaps between them."""
        return in_seconds(call.duration for call in self.calls)

    @property
    def seconds_between(self) -> Sample:
        """The time of a call in which no kernel runs; empty if kernels were not timed."""
        gaps = (call.duration - sum(took for _, _, took in call.spans) for call in self.kept)
        return in_seconds(max(0, gap) for gap in gaps) if self.sites else Sample(())

    @property
    def seconds_of_sites(self) -> list[Sample]:
        """The times of each site."""
        found: list[list[int]] = [[] for _ in self.sites]
        for call in self.calls:
            for number, _, took in call.spans:
                if 0 <= number < len(found):
                    found[number].append(took)
        return [in_seconds(times) for times in found]

    @property
    def usual(self) -> TimedCall | None:
        """The call in the middle, by time."""
        ordered = sorted(self.kept, key=lambda call: call.duration)
        return ordered[len(ordered) // 2] if ordered and self.sites else None


@dataclass(frozen=True)
class KernelTimes:
    """The graphs whose kernels one process timed."""

    pid: int
    graphs: tuple[GraphTimes, ...] = ()
    # Why something could not be measured as it should.
    notes: tuple[str, ...] = ()


def gaps_text(device: str, how: str) -> str:
    """A call while none of its kernels runs, in words."""
    if device != "cpu":
        return "gaps on the device"
    # On the CPU, wrappers in C++ are traced; those in Python look at the clock themselves.
    return f"allocations and {'C++ code' if how == PROFILER else 'Python'}"


def in_seconds(times: Iterable[int]) -> Sample:
    """A sample of times in nanoseconds."""
    return Sample(tuple(time / 1e9 for time in times))


# --- files ----------------------------------------------------------------------------------------


def write_measured(found: Any, folder: Path) -> None:
    """Write what a process measured so that a reader sees the old file or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.pid}.{type(found).__name__}.json"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(encode(found)), "utf-8")
    unfinished.replace(path)


def read_measured(kind: type[T], folder: Path) -> tuple[T, ...]:
    """The measurements of all processes of a run; what is damaged is left out."""
    found = []
    for path in sorted(folder.glob(f"*.{kind.__name__}.json")):
        with contextlib.suppress(OSError, ValueError):
            found.append(decode(kind, json.loads(path.read_text("utf-8"))))
    return tuple(found)
