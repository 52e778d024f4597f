"""A finding: what is known of one failure, as claims.

The doctor inside the program makes claims while it investigates. Each is written at once as an
event of the program's recording, so that whoever follows that stream knows as much: the doctor
outside, which adds what it shows on the program itself, `serve`, and a resumed examination. A
finding never changes: a claim makes a new one, and the latest of several claims of a kind counts.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from inductoscope.doctor.failure import Failure, Location, SuppressingAxis, advice_on_machine
from inductoscope.profiling.compile_growth import Explosion, PartCost
from inductoscope.recording.codec import decode, encode
from inductoscope.recording.events import ClaimMade, NotedDifference
from inductoscope.recording.written import written_events
from inductoscope.torch_facts import stages

# What shows a claim.
PROGRAM, WHOLE_GRAPH, SMALLEST_GRAPH = "the program", "the whole graph", "the smallest graph"
FRESH_PROCESSES = "fresh processes"


# --- facts: all fields have defaults, so that an empty fact says nothing --------------------------


@dataclass(frozen=True)
class Noticed:
    """The compile in which a failure was noticed."""

    compile: str = ""
    # The process it was seen in, where the program has several.
    process: str = ""
    # The backend that failed, if it is not Inductor.
    backend: str = ""
    # The size at which it shows, if the program itself never has that size.
    other_size: str = ""
    # Whether the inputs are those that the sentinel kept.
    is_kept_call: bool = False


@dataclass(frozen=True)
class Flow:
    """The way on which the graph reached Inductor, if it was not plain torch.compile."""

    name: str = ""
    # What torch.compile makes of the same graph: RIGHT, ALSO_FAILS, or empty if that is not known.
    with_torch_compile: str = ""


RIGHT, ALSO_FAILS = "right", "also fails"


@dataclass(frozen=True)
class NotShownAgain:
    """The graph alone did not fail in a fork; all searching rests on that."""

    # What it did instead.
    instead: str = ""


@dataclass(frozen=True)
class Reduction:
    """The smallest graph so far that still fails."""

    nodes: int = 0
    # Nodes of the program's own graph.
    of: int = 0
    operations: tuple[str, ...] = ()
    # The same as the program calls them, and its lines that they come from.
    calls: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def is_cut_down(self) -> bool:
        """Whether nodes were left out of the graph, or there is nothing to leave out."""
        return 0 < self.nodes < self.of or self.of == 1


@dataclass(frozen=True)
class ReplacedPart:
    """A decomposition or lowering of one operation, and the function that is used for it."""

    kind: str
    operation: str
    function: str  # name (file:line)


@dataclass(frozen=True)
class ReplacedParts:
    """Decompositions and lowerings in use that the program has replaced."""

    parts: tuple[ReplacedPart, ...] = ()
    # Why a script cannot hold them.
    not_held: str = ""


@dataclass(frozen=True)
class Suppressed:
    """Axes without which the failure disappears."""

    axes: tuple[SuppressingAxis, ...] = ()


@dataclass(frozen=True)
class SeenInMemory:
    """Evidence that showed only in guarded memory, or in repeated runs."""

    texts: tuple[str, ...] = ()
    # Which kernel reads memory that is not its own, if that is why it fails.
    fault: str = ""


@dataclass(frozen=True)
class Script:
    """The reproducer as it was written, or why there is none."""

    text: str = ""
    expected_output: tuple[str, ...] = ()
    why_not: str = ""


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
class GraphWorkarounds:
    """Workarounds with which the graph is right, the cheapest first."""

    found: tuple[GraphWorkaround, ...] = ()


@dataclass(frozen=True)
class SlowStage:
    """Measurements of a compile in which one stage takes too long."""

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
class SlowInProgram:
    """The same compile in the program: seconds of its slow stage, and of the whole."""

    stage: str = ""
    seconds: float = 0.0
    whole: float = 0.0
    # With the workaround; None if that was not tried, or did not compile.
    left: float | None = None
    whole_left: float | None = None
    # That loop bodies are far larger than the graph, which every stage after it pays for.
    repeated: str = ""
    repeated_evidence: tuple[str, ...] = ()
    # How the program ended, if it failed, and what it printed.
    exit_code: int = 0
    output: str = ""


@dataclass(frozen=True)
class NeededLayout:
    """Results that the program needs to lie in memory as in eager: it ends well with them."""

    notes: tuple[NotedDifference, ...] = ()


@dataclass(frozen=True)
class CheckedAccess:
    """The answer of compute-sanitizer about the reproducer."""

    text: str = ""


@dataclass(frozen=True)
class StepTime:
    """One step. CPU seconds are those of the process and of its children that have ended."""

    process: str
    step: str
    seconds: float
    cpu_seconds: float


@dataclass
class StepClock:
    """Times the steps of one process: a profile of the doctor itself."""

    process: str
    times: list[StepTime] = field(default_factory=list)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Count what runs inside as this step, whether or not it succeeds."""
        started, used = time.monotonic(), cpu_seconds()
        try:
            yield
        finally:
            seconds, cpu = time.monotonic() - started, cpu_seconds() - used
            self.times.append(StepTime(self.process, name, round(seconds, 2), round(cpu, 2)))


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@dataclass(frozen=True)
class SearchProgress:
    """How far the investigation got."""

    candidates: int = 0
    times: tuple[StepTime, ...] = ()
    is_complete: bool = False


@dataclass(frozen=True)
class Mistake:
    """An error in the tool itself, which may have hidden something."""

    text: str = ""


@dataclass(frozen=True)
class Repro:
    """The script that shows the failure, and how often it did in fresh processes."""

    path: str
    verified: bool
    failed: int
    of: int
    nodes: int


def output_of_repro(script: str) -> str:
    """The file with what a reproducer printed."""
    return str(Path(script).with_name("repro-output.txt"))


@dataclass(frozen=True)
class Workaround:
    """A way round the failure, tried on the program."""

    text: str
    verified: bool
    slowdown: float | None = None
    code: str = ""
    # Of a slow program: seconds that it should save, and those that it saved when it was tried.
    predicted: float | None = None
    saved: float | None = None


FACTS: tuple[type, ...] = (
    Noticed,
    Failure,
    Location,
    Flow,
    NotShownAgain,
    Reduction,
    ReplacedParts,
    Suppressed,
    SeenInMemory,
    Script,
    GraphWorkarounds,
    SlowStage,
    SlowInProgram,
    NeededLayout,
    CheckedAccess,
    SearchProgress,
    Mistake,
    Repro,
    Workaround,
)
_BY_NAME = {fact.__name__: fact for fact in FACTS}
T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """A fact about a failure, with what shows it and how that is known."""

    fact: Any  # An instance of one of `FACTS`.
    shown_by: str = ""
    how: str = ""

    def as_event(self) -> ClaimMade:
        """The claim as the recording holds it."""
        name = type(self.fact).__name__
        return ClaimMade(fact=name, data=encode(self.fact), shown_by=self.shown_by, how=self.how)


def claim_of(event: Mapping[str, Any]) -> Claim | None:
    """The claim that an event holds; None if it is damaged."""
    try:
        fact: Any = decode(_BY_NAME[event["fact"]], event["data"])
        return Claim(fact, str(event.get("shown_by") or ""), str(event.get("how") or ""))
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class FailureFinding:
    """One failure: its kind, its place in the compiler and in the program, and all claims."""

    claims: tuple[Claim, ...] = ()

    def claimed(self, fact: Any, shown_by: str = "", how: str = "") -> FailureFinding:
        """The finding with one more claim."""
        return FailureFinding((*self.claims, Claim(fact, shown_by, how)))

    def every(self, kind: type[T], shown_by: str = "") -> list[T]:
        """All facts of a kind, shown by anything or by this alone; the oldest first."""
        return [
            claim.fact
            for claim in self.claims
            if isinstance(claim.fact, kind) and shown_by in ("", claim.shown_by)
        ]

    def latest(self, kind: type[T], shown_by: str = "") -> T | None:
        """The fact of a kind that counts."""
        return next(reversed(self.every(kind, shown_by)), None)

    def fact(self, kind: type[T]) -> T:
        """The same; an empty one if nothing of the kind is claimed."""
        return self.latest(kind) or kind()

    @functools.cached_property
    def failure(self) -> Failure:
        """The failure as the program showed it, with all that smaller graphs add to it."""
        return functools.reduce(Failure.updated_with, self.every(Failure))

    @property
    def kind(self) -> str:
        """The kind of the failure."""
        return self.failure.kind

    @property
    def location(self) -> Location:
        """The place in the compiler."""
        return self.fact(Location)

    @property
    def reduction(self) -> Reduction:
        """The smallest graph so far, with the place in the program."""
        return self.fact(Reduction)

    @property
    def suppressing_axes(self) -> tuple[SuppressingAxis, ...]:
        """The axes without which the failure disappears."""
        return self.fact(Suppressed).axes

    @property
    def compile(self) -> str:
        """The compile in which it was noticed."""
        return self.fact(Noticed).compile

    @property
    def reproduces(self) -> bool:
        """Whether the failure shows again in a fork of the process."""
        return self.latest(Failure, WHOLE_GRAPH) is not None

    @property
    def is_complete(self) -> bool:
        """Whether the investigation came to its end."""
        return self.fact(SearchProgress).is_complete

    @property
    def advice(self) -> str:
        """Advice, where the machine is to blame and not the compiler."""
        return advice_on_machine(self.every(Failure)[0])

    @property
    def is_located(self) -> bool:
        """Whether it is known where it goes wrong: a stage, and what in it."""
        at, stage = self.location, self.location.stage or self.failure.stage
        named = at.operation or at.kernel or at.pass_name or self.failure.detail
        # What is left of a graph that was cut down is to blame, whatever else is known.
        is_left = self.reduction.is_cut_down and bool(self.reduction.operations)
        return bool(stage and (named or is_left)) and stage != stages.INDUCTOR


def finding_in(folder: Path) -> FailureFinding | None:
    """The finding in the recording of a run; None if it has none."""
    events = written_events([folder], ClaimMade.kind)
    finding = FailureFinding(tuple(filter(None, map(claim_of, events))))
    return finding if finding.every(Failure) else None
