"""A finding: the facts about one failure, as claims.

The doctor inside the program makes claims while it investigates. Each is immediately written as an
event of the program's recording, where the doctor outside reads it, and adds claims from runs of
the program itself. The page and a resumed examination read the verdict made of them instead. A
finding is immutable: a claim makes a new one, and the latest of several claims of a kind counts.
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

# Kinds of evidence for a claim.
PROGRAM, WHOLE_GRAPH, SMALLEST_GRAPH = "the program", "the whole graph", "the smallest graph"
FRESH_PROCESSES = "fresh processes"


# --- facts: all fields have defaults, so that an empty fact claims nothing ------------------------


@dataclass(frozen=True)
class Noticed:
    """The compile in which a failure was noticed."""

    compile: str = ""
    # The process with the failure, if the program has several.
    process: str = ""
    # The backend that failed, if it is not Inductor.
    backend: str = ""
    # The size at which the failure shows, if the program itself never uses that size.
    other_size: str = ""
    # The condition under which a fork shows the failure, if the program's own call does not.
    condition: str = ""
    # Whether the inputs are those stored by the sentinel.
    is_kept_call: bool = False


@dataclass(frozen=True)
class Flow:
    """The flow by which the graph reached Inductor, if not plain torch.compile."""

    name: str = ""
    # The outcome of torch.compile for the same graph: RIGHT, ALSO_FAILS, or empty if unknown.
    with_torch_compile: str = ""


RIGHT, ALSO_FAILS = "right", "also fails"


@dataclass(frozen=True)
class NotShownAgain:
    """The fact that the graph alone did not fail in a fork, so that no search is possible."""

    # The outcome in the fork.
    instead: str = ""


@dataclass(frozen=True)
class Reduction:
    """The smallest graph so far that still fails."""

    nodes: int = 0
    # The number of nodes in the program's own graph.
    of: int = 0
    operations: tuple[str, ...] = ()
    # The operations as the program calls them, and its lines.
    calls: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def is_cut_down(self) -> bool:
        """Whether nodes were removed from the graph, or it has only one."""
        return self.is_smaller or self.of == 1

    @property
    def is_smaller(self) -> bool:
        """Whether nodes were removed from the graph."""
        return 0 < self.nodes < self.of


@dataclass(frozen=True)
class ReplacedPart:
    """A decomposition or lowering of one operation, and the function that replaces it."""

    kind: str
    operation: str
    function: str  # name (file:line)


@dataclass(frozen=True)
class ReplacedParts:
    """Decompositions and lowerings in use that the program has replaced."""

    parts: tuple[ReplacedPart, ...] = ()
    # Why a script cannot contain the replaced parts; empty if it can.
    not_held: str = ""


@dataclass(frozen=True)
class Suppressed:
    """Axes without which the failure disappears."""

    axes: tuple[SuppressingAxis, ...] = ()


@dataclass(frozen=True)
class SeenInMemory:
    """Evidence that showed only in guarded memory, or in repeated runs."""

    texts: tuple[str, ...] = ()
    # The kernel that reads foreign memory, if that causes the failure.
    fault: str = ""


@dataclass(frozen=True)
class Script:
    """The text of the reproducer, or why there is none."""

    text: str = ""
    expected_output: tuple[str, ...] = ()
    why_not: str = ""


@dataclass(frozen=True)
class GraphWorkaround:
    """Statements that help the graph; they may or may not help the program."""

    text: str
    code: str
    # The time of a graph call with it as a multiple of that without; None if not measured.
    slowdown: float | None = None
    # For slow compiles: seconds of the slow stage without it and with it.
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
    # The explosion in the smallest graph.
    smallest: Explosion | None = None
    functions: tuple[str, ...] = ()
    share: float = 0.0
    samples: int = 0
    passes: tuple[PartCost, ...] = ()
    lowered: tuple[PartCost, ...] = ()
    # The way in which graphs of several sizes were made.
    sizes_by: str = ""


@dataclass(frozen=True)
class SlowInProgram:
    """The slow compile in the program: seconds of its slow stage, and of the whole compile."""

    stage: str = ""
    seconds: float = 0.0
    whole: float = 0.0
    # Seconds with the workaround; None if it was not tried, or did not compile.
    left: float | None = None
    whole_left: float | None = None
    # A note if loop bodies are far larger than the graph, which slows down all later stages.
    repeated: str = ""
    repeated_evidence: tuple[str, ...] = ()
    # The end and the output of the program, if it failed.
    exit_code: int = 0
    output: str = ""


@dataclass(frozen=True)
class NeededLayout:
    """Results for which the program needs eager's memory layout, with which it succeeds."""

    notes: tuple[NotedDifference, ...] = ()


@dataclass(frozen=True)
class CheckedAccess:
    """The report of compute-sanitizer on the reproducer."""

    text: str = ""


@dataclass(frozen=True)
class StepTime:
    """The time of one step. CPU seconds include children of the process that have ended."""

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
        """Attribute the time of the block to this step, whether or not it succeeds."""
        started, used = time.monotonic(), cpu_seconds()
        try:
            yield
        finally:
            seconds, cpu = time.monotonic() - started, cpu_seconds() - used
            self.times.append(StepTime(self.process, name, round(seconds, 2), round(cpu, 2)))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    return sum(os.times()[:4])


@dataclass(frozen=True)
class SearchProgress:
    """The progress of the investigation."""

    candidates: int = 0
    times: tuple[StepTime, ...] = ()
    is_complete: bool = False


@dataclass(frozen=True)
class Mistake:
    """An error in the tool itself, which may have hidden something."""

    text: str = ""


@dataclass(frozen=True)
class Repro:
    """The script that shows the failure, and how often it failed in fresh processes."""

    path: str
    verified: bool
    failed: int
    of: int
    nodes: int


def output_of_repro(script: str) -> str:
    return str(Path(script).with_name("repro-output.txt"))


@dataclass(frozen=True)
class Workaround:
    """A workaround, tried on the program."""

    text: str
    verified: bool
    slowdown: float | None = None
    code: str = ""
    # For a slow program: the predicted and the measured saving, in seconds.
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
    """A fact about a failure, with its kind of evidence."""

    fact: Any  # An instance of one of `FACTS`.
    shown_by: str = ""

    def as_event(self) -> ClaimMade:
        name = type(self.fact).__name__
        return ClaimMade(fact=name, data=encode(self.fact), shown_by=self.shown_by)


def claim_of(event: Mapping[str, Any]) -> Claim | None:
    """Return the claim in an event; None if it is damaged."""
    try:
        fact: Any = decode(_BY_NAME[event["fact"]], event["data"])
        return Claim(fact, str(event.get("shown_by") or ""))
    except (KeyError, TypeError, ValueError):
        return None


@dataclass(frozen=True)
class FailureFinding:
    """One failure: its kind, its place in the compiler and in the program, and all claims."""

    claims: tuple[Claim, ...] = ()

    def claimed(self, fact: Any, shown_by: str = "") -> FailureFinding:
        return FailureFinding((*self.claims, Claim(fact, shown_by)))

    def every(self, kind: type[T], shown_by: str = "") -> list[T]:
        """Return all facts of a kind, oldest first, optionally of one kind of evidence."""
        return [
            claim.fact
            for claim in self.claims
            if isinstance(claim.fact, kind) and shown_by in ("", claim.shown_by)
        ]

    def latest(self, kind: type[T], shown_by: str = "") -> T | None:
        """Return the latest fact of a kind, which is the one that counts; None if there is none."""
        return next(reversed(self.every(kind, shown_by)), None)

    def fact(self, kind: type[T]) -> T:
        """Return the latest fact of a kind; an empty one if there is none."""
        return self.latest(kind) or kind()

    @functools.cached_property
    def failure(self) -> Failure:
        """The failure as shown by the program, updated with facts from smaller graphs."""
        return functools.reduce(Failure.updated_with, self.every(Failure))

    @property
    def in_program(self) -> Failure:
        """The failure as the program shows it."""
        return self.every(Failure)[0]

    @property
    def kind(self) -> str:
        return self.failure.kind

    @property
    def location(self) -> Location:
        return self.fact(Location)

    @property
    def reduction(self) -> Reduction:
        return self.fact(Reduction)

    @property
    def suppressing_axes(self) -> tuple[SuppressingAxis, ...]:
        return self.fact(Suppressed).axes

    @property
    def compile(self) -> str:
        """The compile in which the failure was noticed."""
        return self.fact(Noticed).compile

    @property
    def reproduces(self) -> bool:
        """Whether the failure is reproduced in a fork of the process."""
        return self.latest(Failure, WHOLE_GRAPH) is not None

    @property
    def is_complete(self) -> bool:
        return self.fact(SearchProgress).is_complete

    @property
    def advice(self) -> str:
        """Advice, if the machine and not the compiler is to blame."""
        return advice_on_machine(self.in_program)

    @property
    def is_located(self) -> bool:
        """Whether the place is known: a stage, and an operation, kernel or pass in it."""
        at, stage = self.location, self.location.stage or self.failure.stage
        named = at.operation or at.kernel or at.pass_name or self.failure.detail
        # The rest of a reduced graph is to blame, whatever else is known.
        is_left = self.reduction.is_cut_down and bool(self.reduction.operations)
        return bool(stage and (named or is_left)) and stage != stages.INDUCTOR


def finding_in(folder: Path) -> FailureFinding | None:
    """Read the finding in the recording of a run that nobody followed to its end."""
    events = written_events([folder], ClaimMade.kind)
    return if_any_failure(FailureFinding(tuple(filter(None, map(claim_of, events)))))


def if_any_failure(finding: FailureFinding) -> FailureFinding | None:
    """Return the finding; None if its claims are about no failure."""
    return finding if finding.every(Failure) else None
