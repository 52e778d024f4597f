"""The format in which the program's processes hand time measurements to the tool.

It covers compiled calls, and kernels in calls of generated wrappers. Times are in nanoseconds.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from inductoscope.profiling.statistics import Sample
from inductoscope.recording.codec import decode, encode
from inductoscope.recording.layout import PROFILE

# A folder inside that of the run; each process writes its own files there.
FOLDER = PROFILE

# Kinds of calls: of a compiled function, of a graph that no function calls, of a package.
FUNCTION, GRAPH, PACKAGE = "function", "graph", "package"
# A compiled function called in eager, and one whose result is differentiated: without the backward
# pass, its time is incomplete.
IN_EAGER, DIFFERENTIATED = "function in eager", "function without its backward pass"

# Ways of timing kernels: by the clock around every kernel call of the wrapper; by torch.profiler,
# on the GPU itself or in a C++ wrapper; or only the graph as a whole.
CLOCK, PROFILER, WHOLE = "clock", "profiler", "whole"

# Operations on float32 that torch may run in TF32.
PRODUCTS, CONVOLUTIONS = "products", "convolutions"

# The most sets of sizes of one graph that are kept apart.
MOST_SIZES = 16

T = TypeVar("T")


# --- compiled calls -------------------------------------------------------------------------------


@dataclass(frozen=True)
class CallTimes:
    name: str
    kind: str
    # The user's line where it is defined, or the file of a package.
    place: str = ""
    # Steady calls, which compiled nothing and follow a warm-up call: their number, total time, and
    # a random sample of times.
    count: int = 0
    total: int = 0
    sample: tuple[int, ...] = ()
    # Times of calls in which something was compiled, and of the first call after each.
    compiling: tuple[int, ...] = ()
    warming: tuple[int, ...] = ()
    # Calls whose time could not be measured.
    dropped: int = 0
    # The group of these calls, if the calls of one function are separated by their arguments.
    group: str = ""

    @property
    def seconds(self) -> Sample:
        return in_seconds(self.sample)


@dataclass(frozen=True)
class ProcessTimes:
    pid: int
    calls: tuple[CallTimes, ...] = ()
    # The number of intra-op threads of torch.
    threads: int = 0
    torch: str = ""
    # Whether calls were timed with a synchronization with the GPU at their end.
    waited_for_gpu: bool = False
    # From the first call to the end of the last, without calls that compiled; 0 if not measured.
    span: int = 0
    # Why a requested change could not be applied; empty if it was.
    not_applied: str = ""
    # Whether several threads called compiled functions, so that calls could not be compared.
    several_threads: bool = False
    # The values of the tried settings at the end of the program.
    settings: Mapping[str, str] = field(default_factory=dict)


def all_calls(processes: Sequence[ProcessTimes]) -> tuple[CallTimes, ...]:
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
    kernel: str
    # 0 in a C++ wrapper, where a call is identified by its kernel's name and occurrence.
    line: int = 0
    occurrence: int = 0


@dataclass(frozen=True)
class TimedCall:
    """One call of a wrapper, with its kernels in the order in which they ran."""

    duration: int
    # For each kernel: the number of its site (-1 if it belongs to none), its start relative to the
    # call, and its duration.
    spans: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True)
class GraphTimes:
    # The file of the wrapper, or of a package.
    path: str
    sizes: Mapping[str, int] = field(default_factory=dict)
    how: str = CLOCK
    device: str = "cpu"
    sites: tuple[Site, ...] = ()
    # The first, cold call; the number of later calls, and a random sample of them.
    first: TimedCall | None = None
    count: int = 0
    kept: tuple[TimedCall, ...] = ()
    # The number of threads of the program that called the wrapper.
    threads: int = 1
    # The number of calls with further sets of sizes, beyond the maximum.
    other_sizes: int = 0
    # Those of PRODUCTS and CONVOLUTIONS that torch was allowed to run in TF32.
    in_tf32: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[TimedCall, ...]:
        """The calls after the first, or the first if there are no others."""
        return self.kept or ((self.first,) if self.first is not None else ())

    @cached_property
    def seconds(self) -> Sample:
        """The times of the whole wrapper: kernels, and the gaps between them."""
        return in_seconds(call.duration for call in self.calls)

    @cached_property
    def between(self) -> Sample:
        """The time of a call in which no kernel runs; empty if kernels were not timed."""
        gaps = (call.duration - sum(took for _, _, took in call.spans) for call in self.kept)
        return in_seconds(max(0, gap) for gap in gaps) if self.sites else Sample(())

    @property
    def idle(self) -> float:
        """The share of a call in which none of its kernels runs."""
        whole = self.seconds.median
        return self.between.median / whole if whole > 0 else 0.0

    @property
    def seconds_of_sites(self) -> list[Sample]:
        found: list[list[int]] = [[] for _ in self.sites]
        for call in self.calls:
            for number, _, took in call.spans:
                if 0 <= number < len(found):
                    found[number].append(took)
        return [in_seconds(times) for times in found]

    @property
    def usual(self) -> TimedCall | None:
        """A call of median duration: the shorter one, if two are in the middle."""
        ordered = sorted(self.kept, key=lambda call: call.duration)
        return ordered[(len(ordered) - 1) // 2] if ordered and self.sites else None


@dataclass(frozen=True)
class KernelTimes:
    pid: int
    graphs: tuple[GraphTimes, ...] = ()
    # Reasons why something could not be measured properly.
    notes: tuple[str, ...] = ()


def gaps_text(device: str, how: str) -> str:
    if device != "cpu":
        return "gaps on the device"
    # On the CPU, C++ wrappers are traced, and Python wrappers read the clock themselves.
    return f"allocations and {'C++ code' if how == PROFILER else 'Python'}"


def in_seconds(times: Iterable[int]) -> Sample:
    return Sample(tuple(time / 1e9 for time in times))


# --- files ----------------------------------------------------------------------------------------


def write_measured(found: Any, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{found.pid}.{type(found).__name__}.json"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(encode(found)), "utf-8")
    unfinished.replace(path)


def read_measured(kind: type[T], folder: Path) -> tuple[T, ...]:
    """Read the measurements of all processes of a run; skip damaged files."""
    found = []
    for path in sorted(folder.glob(f"*.{kind.__name__}.json")):
        with contextlib.suppress(OSError, ValueError):
            found.append(decode(kind, json.loads(path.read_text("utf-8"))))
    return tuple(found)
