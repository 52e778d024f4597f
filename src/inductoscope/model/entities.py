"""The vocabulary: what is known of a recorded run.

    Recording
    ├── Process                      one per stream: a rank, a worker, a forked child
    ├── Check, CallableCheck         what the doctor compared with eager
    └── Compile                      one per attempt of Dynamo at a frame
        ├── Graph                    as Dynamo, AOTAutograd and the passes left it
        ├── GraphBreak, Recompile, CacheLookup, CompileError
        ├── PassChange
        └── InductorGraph            one per graph that Inductor compiled (forward, backward)
            ├── LoweredNode, FusionRound, FusionPair, Fusion
            ├── Kernel, Reuse, Autotune
            └── NativeCompile

Texts are not held: a digest names the payload, and `Recording.payload` reads it on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from inductoscope.model.payload_cache import Kept, Made
from inductoscope.recording.decoding import Entry
from inductoscope.recording.events import (
    BufferReused,
    Event,
    ExceptionUncaught,
    FusionRoundDone,
    KernelDefined,
    NodeLowered,
    PairConsidered,
    PairFused,
)
from inductoscope.recording.values import filled


class Payloads(Protocol):
    """Reads payloads by their digest."""

    def payload(self, digest: str) -> str | None:
        """The text, or None where it is missing."""

    def json_payload(self, digest: str) -> Any:
        """The data, or None where it is missing or damaged."""

    def size(self, digest: str) -> int:
        """How large the text is; 0 where it is missing."""


@dataclass(frozen=True)
class Graph:
    """An FX graph as one stage left it."""

    stage: str
    digest: str
    key: str = ""


@dataclass(frozen=True)
class PassChange:
    """A pass that changed the graph."""

    stage: str
    name: str
    before: str
    after: str
    seconds: float
    graph: str = ""
    inside: tuple[str, ...] = ()


@dataclass(frozen=True)
class LoweredNode:
    """What an FX node became in Inductor's IR."""

    node: str
    target: str
    ir: Any
    made: tuple[Mapping[str, Any], ...]
    fallback: bool
    seconds: float


@dataclass(frozen=True)
class FusionRound:
    """One sweep of the scheduler over all pairs."""

    number: int
    before: int
    after: int
    seconds: float
    # What was set of torch's configuration that decides about fusion; in the first round.
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class FusionPair:
    """Two scheduler nodes that were considered for fusion."""

    round: int
    first: str
    second: str
    type: str
    possible: bool
    reasons: tuple[str, ...]
    # Bytes that torch found the two to share; None where it did not come to that, or is not known.
    shared: int | None = None
    # What torch looked at before it refused without giving a reason.
    decided: Mapping[str, Any] = field(default_factory=dict)
    # The pair that this one was asked about for, where a pair is decided by its parts.
    within: tuple[str, ...] = ()
    # Whether the pair was about to be fused, or only looked at as a candidate.
    attempted: bool = False


@dataclass(frozen=True)
class Fusion:
    """Two scheduler nodes that became one."""

    round: int
    first: str
    second: str
    result: str
    type: str
    bytes_saved: int | None
    score: Mapping[str, Any]


@dataclass(frozen=True)
class Kernel:
    """Generated code, or a call of a library."""

    name: str
    language: str
    digest: str
    nodes: tuple[str, ...]
    origins: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    # (scheduler node, operation in its loop body, line that was written for it)
    lines: tuple[tuple[str, str, str], ...] = ()
    # The same with the number of the line, from 1; empty in old recordings.
    numbered: tuple[tuple[str, str, int], ...] = ()

    @cached_property
    def numbers_by_step(self) -> dict[tuple[str, str], list[int]]:
        """The numbers of its lines, by scheduler node and operation."""
        found: dict[tuple[str, str], list[int]] = {}
        for node, operation, number in self.numbered:
            found.setdefault((node, operation), []).append(number)
        return found


@dataclass(frozen=True)
class Reuse:
    """A buffer that takes over the memory of another."""

    old: str
    new: str
    how: str


@dataclass(frozen=True)
class NativeCompile:
    """One run of a native compiler. `seconds` is None while it has not ended."""

    tool: str
    source: str
    output: str
    command: str
    seconds: float | None
    exit_code: int | None
    error: str
    messages: str
    digest: str
    kernel: str = ""
    config: str = ""
    forms: Mapping[str, str] = field(default_factory=dict)
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    passes: tuple[tuple[str, float], ...] = ()
    cache_hit: bool = False
    process: str = ""


@dataclass(frozen=True)
class CacheLookup:
    """A look-up in one of torch's caches."""

    cache: str
    outcome: str
    key: str
    reason: str


@dataclass(frozen=True)
class GraphBreak:
    """A place where Dynamo had to stop and leave the rest of the frame to a new graph."""

    reason: str
    source: str
    stack: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True)
class Recompile:
    """A frame that was compiled anew because a guard failed."""

    reasons: tuple[str, ...]
    limit: str = ""
    callers: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompileError:
    """An exception that left the compiler."""

    stage: str
    detail: str
    graph: str
    type: str
    message: str
    causes: tuple[str, ...]
    source: str
    raised_in: tuple[str, ...]
    traceback: str
    swallowed: bool = False


@dataclass(frozen=True)
class InductorGraph:
    """A graph that Inductor compiled, or took from its cache."""

    key: str
    phase: str
    cached: bool
    finished: bool
    seconds: Mapping[str, float]
    # Lists of this kind are decoded when someone first looks into them.
    lowered: Sequence[LoweredNode] = ()
    scheduled_before: str = ""
    scheduled_after: str = ""
    rounds: tuple[FusionRound, ...] = ()
    pairs: Sequence[FusionPair] = ()
    fusions: Sequence[Fusion] = ()
    kernels: tuple[Kernel, ...] = ()
    wrapper: str = ""
    wrapper_path: str = ""
    buffers: str = ""
    # One per list of scheduler nodes: inner graphs have their own.
    memory: tuple[str, ...] = ()
    reuses: Sequence[Reuse] = ()
    autotunes: tuple[Autotune, ...] = ()


@dataclass(frozen=True)
class Compile:
    """One attempt of Dynamo to compile a frame of the user's code."""

    id: str
    process: str
    function: str
    resumed: str
    file: str
    line: int
    outcome: str
    reason: str
    seconds: float
    stage_seconds: Mapping[str, float]
    graphs: tuple[Graph, ...] = ()
    passes: tuple[PassChange, ...] = ()
    decompositions: Mapping[str, int] = field(default_factory=dict)
    settings: Settings | None = None
    guard_count: int = 0
    guards: str = ""
    # Of one evaluation of all guards, and the values whose guards take most of it; None if unknown.
    guard_microseconds: float | None = None
    costly_guards: tuple[tuple[str, float], ...] = ()
    # Why torch did without CUDA graphs that were asked for, as it logs it.
    cudagraph_skips: tuple[str, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    recompile: Recompile | None = None
    caches: tuple[CacheLookup, ...] = ()
    inductor: tuple[InductorGraph, ...] = ()
    # Digests of the C++ libraries that were asked for, compiled or in the cache.
    libraries: tuple[str, ...] = ()
    errors: tuple[CompileError, ...] = ()
    # What compiled it: torch.compile unless it says otherwise.
    flow: str = ""

    @property
    def place(self) -> str:
        """Where the frame begins: file and line; empty where it is unknown."""
        return f"{self.file}:{self.line}" if self.file else ""


@dataclass(frozen=True)
class LaunchConfigs:
    """The launch configurations of a Triton kernel, and the milliseconds that each took."""

    kernel: str
    milliseconds: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class OpenStage:
    """A stage that was entered and never left: where a process was when it died."""

    stage: str
    detail: str
    compile: str


@dataclass(frozen=True)
class Process:
    """One process of the recorded program."""

    stream: str
    pid: int
    parent: int
    argv: tuple[str, ...]
    python: str
    rank: str
    role: str
    torch: Mapping[str, Any]
    ended: bool
    # Why it stopped recording, and how many events it could not write although it went on.
    stopped: str
    dropped: int
    unfinished: tuple[OpenStage, ...]
    views_off: tuple[str, ...]
    hook_errors: tuple[str, ...]
    # The compile whose graph it was running, under the doctor's eyes, when it was last heard of.
    call: str = ""
    uncaught: tuple[UncaughtException, ...] = ()


@dataclass(frozen=True)
class Ending:
    """How the recorded command ended, as far as it has."""

    exit_code: int
    signal: int | None
    seconds: float
    # Why the doctor ended it; empty if it ended by itself, or was ended by someone else.
    by_tool: str = ""


@dataclass(frozen=True)
class Recording:
    """Everything that is known of one recorded run."""

    path: str
    manifest: Mapping[str, Any]
    processes: tuple[Process, ...]
    compiles: tuple[Compile, ...]
    natives: tuple[NativeCompile, ...]
    ending: Ending | None
    damage: tuple[tuple[str, str], ...]
    unknown_events: Mapping[str, int]
    payloads: Payloads = field(repr=False, compare=False)
    # The process of the command; 0 if the recording was made from inside the program.
    command_pid: int = 0
    launch_configs: tuple[LaunchConfigs, ...] = ()
    # What the doctor compared with eager, and the compiles that were called more often than that.
    checks: tuple[Check, ...] = ()
    callable_checks: tuple[CallableCheck, ...] = ()
    noted: tuple[NotedDifference, ...] = ()
    unchecked: tuple[str, ...] = ()
    # Other sizes at which the doctor has called packages.
    sizes_tried: tuple[str, ...] = ()
    # Packages with a copy of libstdc++, by file, and the lines that load them.
    copies_of_cpp_library: tuple[tuple[str, str], ...] = ()
    # For a GPU that is not there: compiles, and what is not as it would be on a real one.
    target_notes: tuple[tuple[str, str], ...] = ()
    # What began and ended when; the rest of each process, only when it wrote last.
    timed: tuple[Entry[Event], ...] = field(default=(), repr=False, compare=False)
    _kept: Kept = field(default_factory=Kept, init=False, repr=False, compare=False)

    def once(self, what: str, digests: tuple[str, ...], make: Callable[[], Made]) -> Made:
        """What `make` makes of payloads, made once for all who ask for the same."""
        return self._kept.once(
            (what, digests), make, lambda: sum(self.payloads.size(digest) for digest in digests)
        )

    def payload(self, digest: str) -> str:
        """The text under a digest; empty where it is missing."""
        return self._kept.text(digest, self.payloads.payload) if digest else ""

    def data(self, digest: str) -> Any:
        """The data under a digest; None where it is missing."""
        return self.payloads.json_payload(digest) if digest else None

    @property
    def graphs(self) -> tuple[InductorGraph, ...]:
        """All graphs that Inductor compiled or took from its cache."""
        return tuple(graph for compile_ in self.compiles for graph in compile_.inductor)


# --- What the doctor compared with eager inside the program ---------------------------------------


@dataclass(frozen=True)
class Check:
    """A call of a compiled graph that the doctor compared with eager."""

    compile: str
    call: int
    verdict: str
    text: str
    # Whether it was the same to the last bit; None where this was not looked at.
    is_exact: bool | None = None
    # Seconds of the call in eager and compiled, both on one thread; 0 where it was not timed.
    eager: float = 0.0
    compiled: float = 0.0


@dataclass(frozen=True)
class CallableCheck:
    """A call of a whole compiled function that the doctor compared with eager."""

    function: str
    call: int
    verdict: str
    text: str


@dataclass(frozen=True)
class NotedDifference:
    """A difference from eager that is not a failure: how a result lies in memory, mostly.

    `aspect` is `stride`, `sharing` or `value`, `where` an output of the compiled graph or a kernel.
    """

    compile: str
    aspect: str
    where: str
    text: str = ""


# --- The settings that something was compiled with, where they differ from torch's defaults -------


@dataclass(frozen=True)
class Settings:
    """All values are text, as a program would write them."""

    # By full name: torch._inductor.config.max_fusion_size.
    config: Mapping[str, str] = field(default_factory=dict)
    # Of torch.compile.
    arguments: Mapping[str, str] = field(default_factory=dict)
    # Calls of mark_dynamic and the like.
    marked: tuple[str, ...] = ()
    # What torch itself sets where `config` differs; empty in older recordings.
    defaults: Mapping[str, str] = field(default_factory=dict)

    @property
    def call(self) -> str:
        """The call of torch.compile; empty if it had no arguments."""
        given = ", ".join(f"{name}={value}" for name, value in self.arguments.items())
        return f"torch.compile({given})" if given else ""

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it, as a program would write it."""
        assigned = (f"{name} = {value}" for name, value in self.config.items())
        return tuple(line for line in (self.call, *assigned, *self.marked) if line)


# --- A search for the fastest implementation of an operation, and what it came to -----------------

# How Inductor names what it generates itself; everything else is a call of a library.
_GENERATED = ("triton_", "cpp_", "cutlass_", "cutedsl_", "rocm_", "pallas_")


@dataclass(frozen=True)
class TimedChoice:
    """One implementation that autotuning considered."""

    name: str
    description: str
    milliseconds: float | None
    failed: bool
    # None while its compile has not ended, or where it needs none.
    compile_seconds: float | None = None
    compile_started: bool = False
    error: str = ""

    @property
    def is_generated(self) -> bool:
        """Whether Inductor generated it, rather than calling a library."""
        return self.name.startswith(_GENERATED)

    @property
    def state(self) -> str:
        """What became of it: timed, failed, or how far it got."""
        if self.failed or self.error:
            return "failed"
        if self.milliseconds is not None:
            return f"{self.milliseconds:.4f} ms"
        if self.compile_started and self.compile_seconds is None:
            return "still compiling"
        return "not timed"


@dataclass(frozen=True)
class Autotune:
    """One search for the fastest implementation."""

    operation: str
    choices: tuple[TimedChoice, ...]
    winner: str
    # Shapes and types of what it was tuned for; empty in older recordings.
    inputs: tuple[str, ...] = ()

    @property
    def timed(self) -> tuple[TimedChoice, ...]:
        """The choices that were timed, the fastest first."""
        found = [choice for choice in self.choices if choice.milliseconds is not None]
        return tuple(sorted(found, key=lambda choice: choice.milliseconds or 0.0))

    @property
    def library(self) -> TimedChoice | None:
        """The fastest call of a library; None if none was timed."""
        return next((choice for choice in self.timed if not choice.is_generated), None)

    @property
    def chosen(self) -> TimedChoice | None:
        """The choice that was taken, if it was timed."""
        return next((choice for choice in self.timed if choice.name == self.winner), None)

    @property
    def gain(self) -> float | None:
        """The time of the library as a multiple of the winner's; None where one was not timed."""
        library, chosen = self.library, self.chosen
        if library is None or chosen is None or not chosen.milliseconds:
            return None
        return (library.milliseconds or 0.0) / chosen.milliseconds


# --- Exceptions that nobody caught, as a recording has them ---------------------------------------


@dataclass(frozen=True)
class UncaughtException:
    """An exception that ended a process, or a thread of it if that has a name."""

    type: str
    message: str
    stack: str
    thread: str = ""
    # When it was recorded: what fails first may make others fail.
    at: float = 0.0


def uncaught(event: ExceptionUncaught, at: float) -> UncaughtException:
    """The exception of an event that was written at this time."""
    return UncaughtException(event.type, event.message, event.stack, event.thread, at)


# --- Rounds, pairs and fusions of the scheduler, as the events describe them ----------------------


def fusion_round(event: FusionRoundDone) -> FusionRound:
    """One sweep over all pairs."""
    return FusionRound(
        number=event.round,
        before=event.before,
        after=event.after,
        seconds=event.seconds,
        settings=event.settings,
    )


def fusion_pair(event: PairConsidered) -> FusionPair:
    """A pair that was considered. Old recordings have the first six fields only."""
    return filled(
        FusionPair,
        round=event.round,
        first=event.first,
        second=event.second,
        type=event.type,
        possible=event.possible,
        reasons=event.reasons,
        shared=event.shared,
        decided=event.decided,
        within=event.within,
        attempted=event.step == "attempt",
    )


def fused(event: PairFused) -> Fusion:
    """Two nodes that became one."""
    return filled(
        Fusion,
        round=event.round,
        first=event.first,
        second=event.second,
        result=event.result,
        type=event.type,
        bytes_saved=event.bytes_saved,
        score=event.score,
    )


# --------------------------------------------------------------------------------------------------
# A kernel, a call of a library, or a buffer's memory in new hands, as the event describes it.


def kernel(event: KernelDefined) -> Kernel:
    """What the event says."""
    return filled(
        Kernel,
        name=event.name,
        language=event.language,
        digest=event.payload,
        nodes=event.nodes,
        origins=event.origins,
        reads=event.reads,
        writes=event.writes,
        lines=event.lines,
        numbered=event.numbered,
    )


def reuse(event: BufferReused) -> Reuse:
    """What the event says."""
    return Reuse(event.old, event.new, event.how)


# --- What an FX node became, as its event describes it --------------------------------------------


def lowered(event: NodeLowered) -> LoweredNode:
    """What the event says."""
    return filled(
        LoweredNode,
        node=event.node,
        target=event.target,
        ir=event.ir,
        made=event.made,
        fallback=event.fallback,
        seconds=event.seconds,
    )
