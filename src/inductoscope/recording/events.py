"""Everything that a recording can say: one frozen class per kind of event.

A class names its fields once. What is written, how tolerantly it is read back, and the table in
docs/recording-format.md all follow from it. `KINDS` lists the classes by kind. The model holds
these events as they are, so their names are those of the things that they tell of.

Imported in the user's process at start-up: the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, cached_property
from typing import Any, ClassVar, Generic, TypeVar

from inductoscope.recording.codec import decode_any
from inductoscope.recording.values import real

# --- What all events have in common, and how one is written ---------------------------------------


class Event:
    """Something that happened in a process of the recorded program.

    The first sentence of a subclass's docstring says when it is written. Every default is what its
    type reads as where the field is absent (see `decoding`), so that leaving it out loses nothing.
    """

    # Subclasses are frozen dataclasses.
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kind: ClassVar[str]
    # Whether a process that writes it is getting anywhere. Rounds of fusion may go on for ever.
    is_progress: ClassVar[bool] = True


SomeEvent = TypeVar("SomeEvent", bound=Event, covariant=True)


@dataclass(frozen=True)
class Entry(Generic[SomeEvent]):
    """One line of one stream: an event, and when which process wrote it."""

    stream: str
    number: int
    time: float
    event: SomeEvent

    @property
    def kind(self) -> str:
        """The kind of the event."""
        return self.event.kind


@dataclass(frozen=True)
class UnknownEvent(Event):
    """An event of a kind that this version does not know: counted, not refused."""

    kind: str  # type: ignore[misc]  # Of each event here, not of the class.
    fields: Mapping[str, Any]


_REQUIRED = object()


def written_fields(event: Event) -> dict[str, Any]:
    """The fields as they go to disk: None and what equals the field's default are left out."""
    defaults = _defaults(type(event))  # type: ignore[arg-type]  # A class is hashable.
    return {
        name: value
        for name, value in event.__dict__.items()
        # Types first: torch's values may answer `!=` with anything. One expression, because this
        # runs for every event in the user's program.
        if value is not None
        and value is not (default := defaults[name])
        and (type(value) is not type(default) or value != default)
    }


@cache
def _defaults(event: type[Event]) -> dict[str, Any]:
    return {
        item.name: item.default_factory()
        if item.default_factory is not MISSING
        else _REQUIRED
        if item.default is MISSING
        else item.default
        for item in fields(event)
    }


# --- Events about processes, and about the recording itself ---------------------------------------


@dataclass(frozen=True, kw_only=True)
class ProcessStart(Event):
    """The first event of every stream.

    role: launcher for the tool itself. names_threads: stages name their thread unless it is the
    main one.
    """

    kind = "process"
    pid: int = 0
    parent: int = 0
    argv: tuple[str, ...] = ()
    executable: str = ""
    python: str = ""
    rank: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    role: str = ""
    names_threads: bool = False


@dataclass(frozen=True, kw_only=True)
class ProcessEnd(Event):
    """Python ends normally. dropped: events that could not be written."""

    kind = "process-end"
    dropped: int


@dataclass(frozen=True, kw_only=True)
class RecordingStopped(Event):
    """Writing failed; nothing follows."""

    kind = "stopped"
    reason: str


@dataclass(frozen=True, kw_only=True)
class TorchImported(Event):
    """torch has been imported. seconds: how long that took; absent if it was there before."""

    kind = "torch"
    version: str
    git: str = ""
    cuda: str = ""
    hip: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class HookOff(Event):
    """A private torch name is missing, so its view is switched off."""

    kind = "hook-off"
    stage: str
    records: str
    missing: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class HookError(Event):
    """A hook failed. Written once per hook."""

    kind = "hook-error"
    hook: str
    error: str


@dataclass(frozen=True, kw_only=True)
class ExceptionUncaught(Event):
    """An exception ended the process, a thread of it, or a block that is recorded.

    stack: a payload, its frames as Python prints them; thread: the name; absent on the main thread.
    """

    kind = "uncaught"
    type: str
    message: str = ""
    stack: str = ""
    thread: str = ""


@dataclass(frozen=True, kw_only=True)
class Launched(Event):
    """The tool has started the command."""

    kind = "launched"
    pid: int
    command: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Exited(Event):
    """The command has ended, as the tool saw it. by_tool: why the tool itself ended it."""

    kind = "exited"
    pid: int
    exit_code: int
    signal: int | None = None
    seconds: float
    by_tool: str = ""


# --- Events about compiles: Dynamo's frames, the stages of the compiler, errors, caches -----------


@dataclass(frozen=True, kw_only=True)
class CompileStart(Event):
    """Dynamo begins to compile a frame, or AOTInductor a program.

    resumed: where, for the rest of a frame after a break; flow: AOTInductor, if it is that.
    """

    kind = "compile-start"
    compile: str
    function: str = ""
    resumed: str = ""
    file: str = ""
    line: int = 0
    flow: str = ""


@dataclass(frozen=True, kw_only=True)
class CompileEnd(Event):
    """A compile ends. outcome: compiled, skipped, raised."""

    kind = "compile-end"
    compile: str
    seconds: float
    outcome: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class GraphBreak(Event):
    """Dynamo breaks the graph. stack: outermost first; code: the line that breaks it."""

    kind = "graph-break"
    compile: str = ""
    reason: str
    source: str = ""
    stack: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True, kw_only=True)
class Recompiled(Event):
    """A guard failed, so a frame is compiled again. callers: of the frame, outermost first."""

    kind = "recompile"
    compile: str = ""
    reasons: tuple[str, ...]
    callers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class RecompileLimitHit(Event):
    """torch gives up on a frame that was compiled too often."""

    kind = "recompile-limit"
    compile: str = ""
    limit: str


@dataclass(frozen=True, kw_only=True)
class GuardsBuilt(Event):
    """The guards of a frame are built. payload: a JSON list of source, kind, code, place.

    microseconds: of one evaluation of all of them, measured; costly: those of the values that take
    most of it, by source.
    """

    kind = "guards"
    compile: str = ""
    count: int
    payload: str
    microseconds: float | None = None
    costly: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class FellBackToEager(Event):
    """Dynamo swallowed the exception of this compile; the frame runs in eager."""

    kind = "eager-fallback"
    compile: str
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class CompileFailed(Event):
    """An exception left the compiler. cause: what it was raised from; traceback: a payload."""

    kind = "error"
    compile: str = ""
    graph: str = ""
    stage: str
    detail: str = ""
    type: str
    message: str
    cause: tuple[str, ...] = ()
    source: str = ""
    raised_in: tuple[str, ...] = ()
    traceback: str


@dataclass(frozen=True, kw_only=True)
class StageStart(Event):
    """A stage of the compiler begins. thread: the system's id; absent on the main thread."""

    kind = "stage-start"
    stage: str
    detail: str = ""
    graph: str = ""
    compile: str = ""
    thread: int = 0


@dataclass(frozen=True, kw_only=True)
class StageEnd(Event):
    """A stage ends. seconds: without those of inner stages."""

    kind = "stage"
    stage: str
    detail: str = ""
    graph: str = ""
    compile: str = ""
    seconds: float
    thread: int = 0


@dataclass(frozen=True, kw_only=True)
class TracingContinues(Event):
    """Dynamo has traced another line, or AOTAutograd or a backend another node.

    Written at most once a second.
    """

    kind = "tracing"
    # A loop of the program may be traced for ever: it counts only so often, see `Patience`.
    is_progress = False


@dataclass(frozen=True, kw_only=True)
class CacheLookup(Event):
    """A cache was asked. cache: AOTAutograd, FX graph, launch configuration."""

    kind = "cache"
    cache: str
    outcome: str
    compile: str = ""
    key: str = ""
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class CacheKeyMade(Event):
    """The key of a graph in the FX graph cache was made. payload: JSON, a text per field."""

    kind = "cache-key"
    compile: str = ""
    key: str
    payload: str


@dataclass(frozen=True, kw_only=True)
class Settings(Event):
    """Settings that a frame is compiled with and that differ from torch's defaults.

    config: values of config modules; arguments: of torch.compile; marked: calls of mark_dynamic and
    the like; defaults: what torch itself sets where config differs.
    """

    kind = "settings"
    compile: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    marked: tuple[str, ...] = ()
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


@dataclass(frozen=True, kw_only=True)
class TargetNoted(Event):
    """For a GPU that is not there: something is not as it would be on a real one."""

    kind = "target-note"
    compile: str = ""
    note: str


@dataclass(frozen=True, kw_only=True)
class Decomposed(Event):
    """AOTAutograd has traced a graph. counts: how often each operation was decomposed."""

    kind = "decompositions"
    compile: str = ""
    counts: Mapping[str, int]


# --- Events about one graph: its states, its passes, lowering, scheduling and fusion --------------


@dataclass(frozen=True, kw_only=True)
class GraphState(Event):
    """A stage leaves a graph behind.

    stage: dynamo, pre-grad, aot-joint, aot-inference, aot-forward, aot-backward, joint, post-grad.
    """

    kind = "graph"
    stage: str
    compile: str = ""
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class PassChange(Event):
    """A pass changed the graph. before, after: payloads; inside: the passes around it."""

    kind = "pass"
    stage: str
    name: str
    before: str
    after: str
    seconds: float
    compile: str = ""
    graph: str = ""
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PassesTimed(Event):
    """A group of passes ends. passes: name, seconds, own (without inner passes), runs of each."""

    kind = "pass-times"
    stage: str
    compile: str = ""
    graph: str = ""
    passes: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class InductorStart(Event):
    """Inductor begins to compile a graph."""

    kind = "inductor-start"
    compile: str = ""
    graph: str
    phase: str
    cpp_wrapper: bool = False


@dataclass(frozen=True, kw_only=True)
class InductorEnd(Event):
    """Inductor has compiled a graph."""

    kind = "inductor-end"
    compile: str = ""
    graph: str = ""


@dataclass(frozen=True, kw_only=True)
class CudaGraphsSkipped(Event):
    """torch runs a graph without CUDA graphs that were asked for. reason: as torch logs it."""

    kind = "cudagraphs-skipped"
    compile: str = ""
    graph: str = ""
    reason: str


@dataclass(frozen=True, kw_only=True)
class GraphFromCache(Event):
    """Compiled code was taken from a cache. payload: the wrapper."""

    kind = "cached-graph"
    compile: str = ""
    graph: str
    phase: str
    payload: str = ""


@dataclass(frozen=True, kw_only=True)
class LoweredNode(Event):
    """An FX node was lowered. ir: what it became; made: operations added to the graph."""

    kind = "lowering"
    graph: str = ""
    node: str
    target: str
    ir: Any = None
    made: tuple[Mapping[str, Any], ...] = ()
    fallback: bool = False
    seconds: float


@dataclass(frozen=True, kw_only=True)
class NodesScheduled(Event):
    """The scheduler has listed its nodes. when: before or after fusion; payload: a JSON list."""

    kind = "scheduler"
    graph: str = ""
    when: str
    payload: str


@dataclass(frozen=True, kw_only=True)
class FusionRound(Event):
    """A round of fusion ends. settings: those that decide about fusion, and the names of GPUs."""

    kind = "fusion-round"
    is_progress = False
    graph: str = ""
    round: int
    before: int
    after: int
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FusionPair(Event):
    """A pair was considered for fusion, in the first 64 rounds.

    step: attempt, if it was about to be fused; within: the pair that is decided by this part;
    shared: bytes in common; decided: what decided where torch gives no reason.
    """

    kind = "fusion-pair"
    is_progress = False
    graph: str = ""
    round: int
    step: str = ""
    first: str
    second: str
    within: tuple[str, ...] = ()
    type: str = ""
    possible: bool
    shared: int | None = None
    reasons: tuple[str, ...] = ()
    decided: Mapping[str, Any] = field(default_factory=dict)

    @property
    def attempted(self) -> bool:
        """Whether the pair was about to be fused, or only looked at as a candidate."""
        return self.step == "attempt"


@dataclass(frozen=True, kw_only=True)
class Fusion(Event):
    """Two scheduler nodes became one."""

    kind = "fused"
    is_progress = False
    graph: str = ""
    round: int
    first: str
    second: str
    result: str
    type: str
    score: Mapping[str, Any] = field(default_factory=dict)
    bytes_saved: int | None = None


# --- Events about generated code: kernels, buffers, wrappers, native compilers --------------------


@dataclass(frozen=True, kw_only=True)
class Kernel(Event):
    """A kernel was generated, or a library call in its place.

    language: C++, Triton, extern; lines: scheduler node, operation of its loop body, line;
    numbered: the same with the number of the line, from 1, for lines that the kernel kept.
    """

    kind = "kernel"
    graph: str = ""
    name: str
    language: str
    payload: str = ""
    nodes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    lines: tuple[tuple[str, str, str], ...] = ()
    numbered: tuple[tuple[str, str, int], ...] = ()

    @cached_property
    def numbers_by_step(self) -> dict[tuple[str, str], list[int]]:
        """The numbers of its lines, by scheduler node and operation."""
        found: dict[tuple[str, str], list[int]] = {}
        for node, operation, number in self.numbered:
            found.setdefault((node, operation), []).append(number)
        return found


@dataclass(frozen=True, kw_only=True)
class Reuse(Event):
    """A buffer takes over the memory of another. how: memory, in place."""

    kind = "reuse"
    graph: str = ""
    old: str
    new: str
    how: str


@dataclass(frozen=True, kw_only=True)
class BuffersListed(Event):
    """The wrapper is generated. payload: JSON, the origin of every buffer."""

    kind = "buffers"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class MemoryListed(Event):
    """The kernels of a graph are generated.

    payload: JSON, the room of every buffer, the range of every symbol, and what guards assume.
    """

    kind = "memory"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class WrapperGenerated(Event):
    """The wrapper is generated."""

    kind = "wrapper"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class WrapperLoaded(Event):
    """The wrapper is loaded."""

    kind = "wrapper-loaded"
    graph: str = ""
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class LibraryWanted(Event):
    """A C++ library is asked for; it is compiled only if a `native` event follows."""

    kind = "cpp-library"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class NativeStart(Event):
    """A native compiler starts. tool: c++, triton."""

    kind = "native-start"
    tool: str
    source: str = ""
    kernel: str = ""
    config: str = ""


@dataclass(frozen=True, kw_only=True)
class NativeEnd(Event):
    """A native compiler ends.

    payload: the source; messages: a payload; passes: name and seconds; forms: payloads of TTIR,
    TTGIR, LLIR, PTX, SASS.
    """

    kind = "native"
    tool: str = ""
    source: str = ""
    kernel: str = ""
    config: str = ""
    output: str = ""
    command: str = ""
    seconds: float | None = None
    exit_code: int | None = None
    error: str = ""
    messages: str = ""
    payload: str = ""
    passes: tuple[tuple[str, float], ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    cache_hit: bool = False
    target: str = ""


# --- Events about autotuning: the choices of an operation, their compiles and their timing --------


@dataclass(frozen=True, kw_only=True)
class AutotuneStart(Event):
    """Autotuning of an operation begins. choices: name, class and description of each.

    inputs: the shapes and types that it is tuned for.
    """

    kind = "autotune"
    graph: str = ""
    operation: str
    choices: tuple[Mapping[str, Any], ...]
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class AutotuneTimed(Event):
    """All choices have been timed."""

    kind = "autotune-timed"
    graph: str = ""
    operation: str
    milliseconds: Mapping[str, float]
    failed: tuple[str, ...] = ()
    winner: str = ""


@dataclass(frozen=True, kw_only=True)
class AutotuneChosen(Event):
    """A choice was made."""

    kind = "autotune-chosen"
    graph: str = ""
    operation: str
    choice: str


@dataclass(frozen=True, kw_only=True)
class LaunchConfigs(Event):
    """The launch configurations of a Triton kernel have been timed."""

    kind = "autotune-configs"
    kernel: str = ""
    milliseconds: tuple[tuple[str, float], ...]


@dataclass(frozen=True, kw_only=True)
class ChoiceStart(Event):
    """One choice begins to compile, ahead of its timing."""

    kind = "choice-start"
    choice: str


@dataclass(frozen=True, kw_only=True)
class ChoiceEnd(Event):
    """The compile of one choice ends."""

    kind = "choice-end"
    choice: str
    seconds: float
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchmarkStart(Event):
    """The timing of one choice begins. text: the choice in full."""

    kind = "benchmark-start"
    choice: str
    text: str
    compile: str = ""


@dataclass(frozen=True, kw_only=True)
class BenchmarkEnd(Event):
    """The timing of one choice ends."""

    kind = "benchmark-end"
    choice: str
    text: str
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class TorchLogged(Event):
    """torch logs a line about choices, at any level."""

    kind = "torch-log"
    text: str
    compile: str = ""


# --- Events that the doctor writes from inside the program ----------------------------------------

# Stands before the name of a package that another process has made, in the place of a compile.
FROM_ELSEWHERE = "package "
# Verdicts on a call with inputs that the graph was not compiled for.
OUTSIDE, WRONG_OUTSIDE = "outside", "wrong-outside"
# Verdict on a call that is wrong outside, and right with copies of the constants it was given.
RIGHT_WITH_COPIES = "right-with-copies"
# Verdict on a call that there was to be, had torch taken the constants that it was given.
REJECTED = "rejected"
# Verdicts on a call that torch's own check for NaN refuses: for good reason, or so it seems.
NAN_REFUSED, NAN_LIKELY = "nan-refused", "nan-likely"


@dataclass(frozen=True, kw_only=True)
class GraphCall(Event):
    """A checked call of a compiled graph begins."""

    kind = "graph-call"
    compile: str
    call: int


@dataclass(frozen=True, kw_only=True)
class GraphReturned(Event):
    """A checked call of a compiled graph ends."""

    kind = "graph-returned"
    compile: str
    call: int


@dataclass(frozen=True, kw_only=True)
class EagerReturned(Event):
    """Eager is through with the call; compiled code comes next."""

    kind = "eager-returned"
    seconds: float


@dataclass(frozen=True, kw_only=True)
class CallsUnchecked(Event):
    """A graph has been called more often than calls are checked."""

    kind = "calls-unchecked"
    compile: str


@dataclass(frozen=True, kw_only=True)
class SizesTried(Event):
    """A package was called at sizes that the program does not use. text: which graph and sizes."""

    kind = "sizes-tried"
    text: str


@dataclass(frozen=True, kw_only=True)
class Check(Event):
    """A call of a compiled graph was compared with eager.

    verdict: right, within-rounding, unsteady, skipped, eager-fails, wrong, error; outside, before a
    call with inputs that it was not compiled for, and wrong-outside if it is then wrong;
    right-with-copies, if it is right once constants that are views are replaced by copies;
    rejected, if torch raised an error instead of taking new constants before it;
    nan-refused, if nan_asserts raised because of the program's own NaN; nan-likely, if there is
    such NaN, but it may not be what it raised for; is_exact: the same to the last bit; eager,
    compiled: seconds of the call, with its backward pass.
    """

    kind = "check"
    compile: str
    call: int
    verdict: str
    text: str
    is_exact: bool | None = None
    eager: float = 0.0
    compiled: float = 0.0


@dataclass(frozen=True, kw_only=True)
class NotedDifference(Event):
    """A result differs from eager's, which is not a failure. where: an output, or a kernel.

    aspect: stride or sharing, if it lies otherwise in memory; value, if a kernel differs by more
    than rounding explains, though the results do not.
    """

    kind = "difference"
    compile: str
    call: int = 0
    aspect: str
    where: str
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class CppLibraryTaken(Event):
    """A package brings a copy of libstdc++: the one that torch uses was made to come first.

    package: its file, empty if it was only compiled so far; source: the line that loads it.
    """

    kind = "cpp-library-taken"
    package: str = ""
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class CallableCheck(Event):
    """A whole function was compared with eager. verdict: right, differs."""

    kind = "callable-check"
    function: str
    call: int
    verdict: str
    text: str


@dataclass(frozen=True, kw_only=True)
class KernelLaunched(Event):
    """A kernel is about to run, in a process that tries something out."""

    kind = "launch"
    kernel: str


@dataclass(frozen=True, kw_only=True)
class ClaimMade(Event):
    """The doctor claims something of a failure that it has found.

    fact: the kind of the claim; data: what it says; shown_by: what shows it; how: how it is known.
    """

    kind = "claim"
    fact: str
    data: Mapping[str, Any]
    shown_by: str = ""
    how: str = ""


@dataclass(frozen=True, kw_only=True)
class CandidateJudged(Event):
    """The search has tried a candidate. failure: how it failed; None if it did not."""

    kind = "judged"
    candidate: str
    failure: Any = None


@dataclass(frozen=True, kw_only=True)
class GrowthMeasured(Event):
    """A graph was compiled at several sizes. growth: what each of them cost."""

    kind = "growth"
    growth: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Said(Event):
    """The doctor inside the program says what it does, for whoever watches."""

    kind = "said"
    text: str


@dataclass(frozen=True, kw_only=True)
class CallShadowed(Event):
    """A call of a compiled graph was also made in eager and float64, by the sentinel.

    spent, seen: seconds that shadowing has taken so far, and that the program had for itself.
    """

    kind = "shadow"
    compile: str
    call: int
    values: int
    spent: float
    seen: float


@dataclass(frozen=True, kw_only=True)
class ShadowsEnded(Event):
    """The sentinel shadows no more calls of a graph, and says why."""

    kind = "shadows-ended"
    compile: str
    text: str


@dataclass(frozen=True, kw_only=True)
class BiasFound(Event):
    """The error of a value of a compiled graph always points the same way. kept: the folder of the
    call."""

    kind = "bias"
    compile: str
    value: str
    direction: str
    bias: float
    call: int
    shadowed: int
    text: str
    kept: str


# --- All kinds of events, by their name in a stream -----------------------------------------------


def _kinds() -> dict[str, type[Event]]:
    found = [v for v in globals().values() if isinstance(v, type) and issubclass(v, Event)]
    return {event.kind: event for event in found if "kind" in vars(event)}


KINDS: dict[str, type[Event]] = _kinds()


def read_entry(stream: str, found: dict[str, Any]) -> Entry[Event]:
    """The entry of a line that is JSON with a kind, each field read by itself."""
    number, time = found.pop("n", None), real(found.pop("t", None))
    event = read_event(found.pop("kind"), found)
    return Entry(stream, number if isinstance(number, int) else -1, time, event)


def read_event(kind: str, found: Mapping[str, Any]) -> Event:
    """The typed event; fields that its class does not have are ignored."""
    known = KINDS.get(kind)
    return UnknownEvent(kind, found) if known is None else decode_any(known, found)
