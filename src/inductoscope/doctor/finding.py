"""What an investigation inside the program's process hands over to the doctor outside."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.doctor.failure import Failure, Location, SuppressingAxis
from inductoscope.doctor.instructions import FINDING, PROGRESS
from inductoscope.profiling.compile_growth import Explosion, PartCost
from inductoscope.profiling.compile_times import MeasuredGrowth
from inductoscope.recording.codec import decode, encode
from inductoscope.torch_facts import stages


@dataclass(frozen=True)
class GraphWorkaround:
    """Statements that help the graph; whether they help the program has to be tried."""

    text: str
    code: str
    # How many times as long a call of the graph takes with it; None if that was not measured.
    slowdown: float | None = None
    # Seconds that the slow stage takes without it and with it, where compiling is what is slow.
    before: float | None = None
    after: float | None = None


@dataclass(frozen=True)
class SlowCompileFound:
    """What was measured of a compile that takes too long."""

    # None if compile time is in proportion after all.
    explosion: Explosion | None = None
    # The same of the smallest graph.
    smallest: Explosion | None = None
    functions: tuple[str, ...] = ()
    share: float = 0.0
    samples: int = 0
    passes: tuple[PartCost, ...] = ()
    lowered: tuple[PartCost, ...] = ()
    # How the sizes were made over which growth was measured.
    sizes_by: str = ""


@dataclass(frozen=True)
class ReplacedPart:
    """A decomposition or lowering of one operation, and the function that is used for it."""

    kind: str
    operation: str
    function: str  # name (file:line)

    @property
    def text(self) -> str:
        """What is said of it."""
        return f"the {self.kind} of {self.operation} in use is {self.function}, not torch's"


@dataclass
class Found:
    """All that is known about one failure; filled in step by step."""

    compile: str
    failure: Failure
    # The process it was seen in, where the program has several.
    process: str = ""
    is_complete: bool = False
    # The backend that failed, if it is not Inductor.
    backend: str = ""
    # How the graph reached Inductor, and what torch.compile makes of it if that was another way.
    flow: str = ""
    shows_with_torch_compile: bool = False
    is_right_with_torch_compile: bool = False
    # What to do, where the machine is to blame and not the compiler.
    advice: str = ""
    # Whether the failure shows again in a fork of the process; all searching rests on that.
    reproduces: bool = False
    # Whether the inputs are those that the sentinel kept.
    is_kept_call: bool = False
    # What the graph alone did instead, if it does not.
    alone: str = ""
    # The size at which it shows, if the program itself never has that size.
    other_size: str = ""
    location: Location = field(default_factory=Location)
    # The first wrong kernel of the program's own graph, compiled the way the program does.
    in_program: Location = field(default_factory=Location)
    # The same before the graph is cut down, if torch.compile is what the program uses.
    in_whole_graph: Location = field(default_factory=Location)
    # What the program's own graph did: the outputs that are wrong, or the kernel that fails.
    first_failure: Failure | None = None
    operations: list[str] = field(default_factory=list)
    # The same as the program calls them.
    calls: list[str] = field(default_factory=list)
    # What showed only in guarded memory, or in repeated runs.
    device_evidence: list[str] = field(default_factory=list)
    # Which kernel reads memory that is not its own, if that is why it fails.
    memory_fault: str = ""
    functions: list[str] = field(default_factory=list)
    # Decompositions and lowerings in use that the program has replaced, and why a script cannot
    # hold them.
    replaced: list[ReplacedPart] = field(default_factory=list)
    not_held: str = ""
    sources: list[str] = field(default_factory=list)
    suppressing_axes: list[SuppressingAxis] = field(default_factory=list)
    nodes_before: int = 0
    nodes: int = 0
    script: str = ""
    no_script: str = ""
    expected_output: list[str] = field(default_factory=list)
    # The cheapest first.
    workarounds: list[GraphWorkaround] = field(default_factory=list)
    candidates_tried: int = 0
    notes: list[str] = field(default_factory=list)
    slow: SlowCompileFound | None = None
    growth: MeasuredGrowth | None = None
    times: list[StepTime] = field(default_factory=list)

    @property
    def is_located(self) -> bool:
        """Whether it is known where it goes wrong: a stage, and what in it."""
        at, stage = self.location, self.location.stage or self.failure.stage
        named = at.operation or at.kernel or at.pass_name or self.failure.detail
        # What is left of a graph that was cut down is to blame, whatever else is known.
        is_left = self.is_cut_down and bool(self.operations)
        return bool(stage and (named or is_left)) and stage != stages.INDUCTOR

    @property
    def is_cut_down(self) -> bool:
        """Whether nodes were left out of the graph, or there is nothing to leave out."""
        return 0 < self.nodes < self.nodes_before or self.nodes_before == 1


def write_found(found: Found, place: Path) -> None:
    """Write what is known so far; a reader sees the old file or the new one."""
    unfinished = place / f".{os.getpid()}-{FINDING}"
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps(encode(found)), "utf-8")
        os.replace(unfinished, place / FINDING)


def read_found(place: Path) -> Found | None:
    """The finding of a run, if it has one."""
    try:
        return decode(Found, json.loads((place / FINDING).read_text("utf-8")))
    except (OSError, ValueError):
        return None


def bytes_of_finding(place: Path) -> bytes:
    """The finding as it is written; nothing if there is none."""
    try:
        return (place / FINDING).read_bytes()
    except OSError:
        return b""


def say(place: Path, text: str) -> None:
    """Tell whoever watches what is being done."""
    with contextlib.suppress(OSError), (place / PROGRESS).open("a", encoding="utf-8") as file:
        file.write(json.dumps({"t": time.time(), "text": text}) + "\n")


# --- How long each step of an examination took, by process: a profile of the doctor itself --------


@dataclass(frozen=True)
class StepTime:
    """One step. CPU seconds are those of the process and of its children that have ended."""

    process: str
    step: str
    seconds: float
    cpu_seconds: float


@dataclass
class StepClock:
    """Times the steps of one process."""

    process: str
    times: list[StepTime] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """What runs inside counts as this step, whether or not it succeeds."""
        started, used = time.monotonic(), cpu_seconds()
        try:
            yield
        finally:
            seconds, cpu = time.monotonic() - started, cpu_seconds() - used
            self.times.append(StepTime(self.process, name, round(seconds, 2), round(cpu, 2)))


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])
