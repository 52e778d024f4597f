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
SUFFIX = ".times.json"

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
    path = folder / f"{times.pid}{SUFFIX}"
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(encode(times)), "utf-8")
    unfinished.replace(path)


def read_times(folder: Path) -> tuple[ProcessTimes, ...]:
    """The times of all processes of a run; what is damaged is left out."""
    found = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
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
