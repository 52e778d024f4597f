"""Everything that a recording can say: one frozen class per kind of event.

A class names its fields once. What is written, how tolerantly it is read back, and the table in
docs/recording-format.md all follow from it. Every subclass of `Event` is a frozen dataclass, and is
in `KINDS` under its kind. The model holds these events as they are, so their names are those of the
things that they tell of.

Imported in the user's process at start-up: the standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from inductoscope.recording.codec import decode_any
from inductoscope.recording.values import real

# --- What all events have in common, and how one is written ---------------------------------------


if TYPE_CHECKING:
    from typing_extensions import dataclass_transform as dataclass_transform
else:  # In typing since Python 3.11; read by type checkers only.

    def dataclass_transform(**_):
        return lambda cls: cls


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Event:
    """Something that happened in a process of the recorded program.

    The first sentence of a subclass's docstring says when it is written. Every default is what its
    type reads as where the field is absent (see `decoding`), so that leaving it out loses nothing.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kind: ClassVar[str]
    # Whether the event counts as progress. Fusion rounds do not: they may never end.
    is_progress: ClassVar[bool] = True

    def __init_subclass__(cls, *, kind: str = "", is_progress: bool = True) -> None:
        if kind:
            cls.kind, cls.is_progress = kind, is_progress
            KINDS[kind] = cls
        dataclass(frozen=True, kw_only=True)(cls)


# The event classes by kind.
KINDS: dict[str, type[Event]] = {}
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
        return self.event.kind


class UnknownEvent(Event):
    """An event of a kind that this version does not know: counted, not refused."""

    kind: str  # type: ignore[misc]  # Of each event here, not of the class.
    fields: Mapping[str, Any]


_REQUIRED = object()


def written_fields(event: Event) -> dict[str, Any]:
    """Return an event's fields as stored: None and defaults are omitted."""
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


class ProcessStart(Event, kind="process"):
    """The first event of every stream.

    role: launcher for the tool itself. names_threads: stages name their thread unless it is the
    main one.
    """

    pid: int = 0
    parent: int = 0
    argv: tuple[str, ...] = ()
    executable: str = ""
    python: str = ""
    rank: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    role: str = ""
    names_threads: bool = False


class ProcessEnd(Event, kind="process-end"):
    """Python ends normally. dropped: events that could not be written."""

    dropped: int


class RecordingStopped(Event, kind="stopped"):
    """Writing failed; nothing follows."""

    reason: str


class TorchImported(Event, kind="torch"):
    """torch has been imported. seconds: how long that took; absent if it was there before."""

    version: str
    git: str = ""
    cuda: str = ""
    hip: str = ""
    seconds: float = 0.0


class HookOff(Event, kind="hook-off"):
    """A private torch name is missing, so its view is switched off."""

    stage: str
    records: str
    missing: tuple[str, ...]


class HookError(Event, kind="hook-error"):
    """A hook failed. Written once per hook."""

    hook: str
    error: str


class ExceptionUncaught(Event, kind="uncaught"):
    """An exception ended the process, a thread of it, or a block that is recorded.

    stack: a payload, its frames as Python prints them; thread: the name; absent on the main thread.
    """

    type: str
    message: str = ""
    stack: str = ""
    thread: str = ""


class Launched(Event, kind="launched"):
    """The tool has started the command."""

    pid: int
    command: tuple[str, ...]


class Exited(Event, kind="exited"):
    """The command has ended, as the tool saw it. by_tool: why the tool itself ended it."""

    pid: int
    exit_code: int
    signal: int | None = None
    seconds: float
    by_tool: str = ""


# --- Events about compiles: Dynamo's frames, the stages of the compiler, errors, caches -----------


class CompileStart(Event, kind="compile-start"):
    """Dynamo begins to compile a frame, or AOTInductor a program.

    resumed: where, for the rest of a frame after a break; flow: AOTInductor, if it is that.
    """

    compile: str
    function: str = ""
    resumed: str = ""
    file: str = ""
    line: int = 0
    flow: str = ""


class CompileEnd(Event, kind="compile-end"):
    """A compile ends. outcome: compiled, skipped, raised."""

    compile: str
    seconds: float
    outcome: str
    reason: str = ""


class GraphBreak(Event, kind="graph-break"):
    """Dynamo breaks the graph. stack: outermost first; code: the line that breaks it."""

    compile: str = ""
    reason: str
    source: str = ""
    stack: tuple[str, ...] = ()
    code: str = ""


class Recompiled(Event, kind="recompile"):
    """A guard failed, so a frame is compiled again. callers: of the frame, outermost first."""

    compile: str = ""
    reasons: tuple[str, ...]
    callers: tuple[str, ...] = ()


class RecompileLimitHit(Event, kind="recompile-limit"):
    """torch gives up on a frame that was compiled too often."""

    compile: str = ""
    limit: str


class GuardsBuilt(Event, kind="guards"):
    """The guards of a frame are built. payload: a JSON list of source, kind, code, place.

    microseconds: of one evaluation of all of them, measured; costly: those of the values that take
    most of it, by source.
    """

    compile: str = ""
    count: int
    payload: str
    microseconds: float | None = None
    costly: tuple[tuple[str, float], ...] = ()


class FellBackToEager(Event, kind="eager-fallback"):
    """Dynamo swallowed the exception of this compile; the frame runs in eager."""

    compile: str
    reason: str = ""


class CompileFailed(Event, kind="error"):
    """An exception left the compiler. cause: what it was raised from; traceback: a payload."""

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


class StageStart(Event, kind="stage-start"):
    """A stage of the compiler begins. thread: the system's id; absent on the main thread."""

    stage: str
    detail: str = ""
    graph: str = ""
    compile: str = ""
    thread: int = 0


class StageEnd(Event, kind="stage"):
    """A stage ends. seconds: without those of inner stages."""

    stage: str
    detail: str = ""
    graph: str = ""
    compile: str = ""
    seconds: float
    thread: int = 0


class TracingContinues(Event, kind="tracing", is_progress=False):
    """Dynamo has traced another line, or AOTAutograd or a backend another node.

    Written at most once a second.
    """

    # Tracing may never leave a loop of the program: only some signs count, see `Patience`.


class CacheLookup(Event, kind="cache"):
    """A cache was asked. cache: AOTAutograd, FX graph, launch configuration."""

    cache: str
    outcome: str
    compile: str = ""
    key: str = ""
    reason: str = ""


class CacheKeyMade(Event, kind="cache-key"):
    """The key of a graph in the FX graph cache was made. payload: JSON, a text per field."""

    compile: str = ""
    key: str
    payload: str


class Settings(Event, kind="settings"):
    """Settings that a frame is compiled with and that differ from torch's defaults.

    config: values of config modules; arguments: of torch.compile; marked: calls of mark_dynamic and
    the like; defaults: what torch itself sets where config differs.
    """

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
        """The call and the settings as a program would write them."""
        assigned = (f"{name} = {value}" for name, value in self.config.items())
        return tuple(line for line in (self.call, *assigned, *self.marked) if line)


class TargetNoted(Event, kind="target-note"):
    """For a GPU that is not there: something is not as it would be on a real one."""

    compile: str = ""
    note: str


class Decomposed(Event, kind="decompositions"):
    """AOTAutograd has traced a graph. counts: how often each operation was decomposed."""

    compile: str = ""
    counts: Mapping[str, int]


# --- Events about one graph: its states, its passes, lowering, scheduling and fusion --------------


class GraphState(Event, kind="graph"):
    """A stage leaves a graph behind.

    stage: dynamo, pre-grad, aot-joint, aot-inference, aot-forward, aot-backward, joint, post-grad.
    """

    stage: str
    compile: str = ""
    graph: str = ""
    payload: str


class PassChange(Event, kind="pass"):
    """A pass changed the graph. before, after: payloads; inside: the passes around it."""

    stage: str
    name: str
    before: str
    after: str
    seconds: float
    compile: str = ""
    graph: str = ""
    inside: tuple[str, ...] = ()


class PassesTimed(Event, kind="pass-times"):
    """A group of passes ends. passes: name, seconds, own (without inner passes), runs of each."""

    stage: str
    compile: str = ""
    graph: str = ""
    passes: tuple[Mapping[str, Any], ...] = ()


class InductorStart(Event, kind="inductor-start"):
    """Inductor begins to compile a graph."""

    compile: str = ""
    graph: str
    phase: str
    cpp_wrapper: bool = False


class InductorEnd(Event, kind="inductor-end"):
    """Inductor has compiled a graph."""

    compile: str = ""
    graph: str = ""


class CudaGraphsSkipped(Event, kind="cudagraphs-skipped"):
    """torch runs a graph without CUDA graphs that were asked for. reason: as torch logs it."""

    compile: str = ""
    graph: str = ""
    reason: str


class GraphFromCache(Event, kind="cached-graph"):
    """Compiled code was taken from a cache. payload: the wrapper."""

    compile: str = ""
    graph: str
    phase: str
    payload: str = ""


class LoweredNode(Event, kind="lowering"):
    """An FX node was lowered. ir: what it became; made: operations added to the graph."""

    graph: str = ""
    node: str
    target: str
    ir: Any = None
    made: tuple[Mapping[str, Any], ...] = ()
    fallback: bool = False
    seconds: float


class NodesScheduled(Event, kind="scheduler"):
    """The scheduler has listed its nodes. when: before or after fusion; payload: a JSON list."""

    graph: str = ""
    when: str
    payload: str


class FusionRound(Event, kind="fusion-round", is_progress=False):
    """A round of fusion ends. settings: those that decide about fusion, and the names of GPUs."""

    graph: str = ""
    round: int
    before: int
    after: int
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)


class FusionPair(Event, kind="fusion-pair", is_progress=False):
    """A pair was considered for fusion, in the first 64 rounds.

    step: attempt, if it was about to be fused; within: the pair that is decided by this part;
    shared: bytes in common; decided: what decided where torch gives no reason.
    """

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
        """Whether the pair was about to be fused, rather than only considered."""
        return self.step == "attempt"


class Fusion(Event, kind="fused", is_progress=False):
    """Two scheduler nodes became one."""

    graph: str = ""
    round: int
    first: str
    second: str
    result: str
    type: str
    score: Mapping[str, Any] = field(default_factory=dict)
    bytes_saved: int | None = None


# --- Events about generated code: kernels, buffers, wrappers, native compilers --------------------


class Kernel(Event, kind="kernel"):
    """A kernel was generated, or a library call in its place.

    language: C++, Triton, extern; lines: scheduler node, operation of its loop body, line;
    numbered: the same with the number of the line, from 1, for lines that the kernel kept.
    """

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
        """The kernel's line numbers, by scheduler node and operation."""
        found: dict[tuple[str, str], list[int]] = {}
        for node, operation, number in self.numbered:
            found.setdefault((node, operation), []).append(number)
        return found


class Reuse(Event, kind="reuse"):
    """A buffer takes over the memory of another. how: memory, in place."""

    graph: str = ""
    old: str
    new: str
    how: str


class BuffersListed(Event, kind="buffers"):
    """The wrapper is generated. payload: JSON, the origin of every buffer."""

    graph: str = ""
    payload: str


class MemoryListed(Event, kind="memory"):
    """The kernels of a graph are generated.

    payload: JSON, the room of every buffer, the range of every symbol, and what guards assume.
    """

    graph: str = ""
    payload: str


class WrapperGenerated(Event, kind="wrapper"):
    """The wrapper is generated."""

    graph: str = ""
    payload: str


class WrapperLoaded(Event, kind="wrapper-loaded"):
    """The wrapper is loaded."""

    graph: str = ""
    path: str = ""


class LibraryWanted(Event, kind="cpp-library"):
    """A C++ library is asked for; it is compiled only if a `native` event follows."""

    graph: str = ""
    payload: str


class NativeStart(Event, kind="native-start"):
    """A native compiler starts. tool: c++, triton."""

    tool: str
    source: str = ""
    kernel: str = ""
    config: str = ""


class NativeEnd(Event, kind="native"):
    """A native compiler ends.

    payload: the source; messages: a payload; passes: name and seconds; forms: payloads of TTIR,
    TTGIR, LLIR, PTX, SASS.
    """

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


class AutotuneStart(Event, kind="autotune"):
    """Autotuning of an operation begins. choices: name, class and description of each.

    inputs: the shapes and types that it is tuned for.
    """

    graph: str = ""
    operation: str
    choices: tuple[Mapping[str, Any], ...]
    inputs: tuple[str, ...] = ()


class AutotuneTimed(Event, kind="autotune-timed"):
    """All choices have been timed."""

    graph: str = ""
    operation: str
    milliseconds: Mapping[str, float]
    failed: tuple[str, ...] = ()
    winner: str = ""


class AutotuneChosen(Event, kind="autotune-chosen"):
    """A choice was made."""

    graph: str = ""
    operation: str
    choice: str


class LaunchConfigs(Event, kind="autotune-configs"):
    """The launch configurations of a Triton kernel have been timed."""

    kernel: str = ""
    milliseconds: tuple[tuple[str, float], ...]


class ChoiceStart(Event, kind="choice-start"):
    """One choice begins to compile, ahead of its timing."""

    choice: str


class ChoiceEnd(Event, kind="choice-end"):
    """The compile of one choice ends."""

    choice: str
    seconds: float
    error: str = ""


class BenchmarkStart(Event, kind="benchmark-start"):
    """The timing of one choice begins. text: the choice in full."""

    choice: str
    text: str
    compile: str = ""


class BenchmarkEnd(Event, kind="benchmark-end"):
    """The timing of one choice ends."""

    choice: str
    text: str
    error: str = ""


class TorchLogged(Event, kind="torch-log"):
    """torch logs a line about choices, at any level."""

    text: str
    compile: str = ""


# --- Events that the doctor writes from inside the program ----------------------------------------

# The prefix of the name of a package made by another process, in place of a compile.
FROM_ELSEWHERE = "package "
# Verdicts on a call with inputs that the graph was not compiled for.
OUTSIDE, WRONG_OUTSIDE = "outside", "wrong-outside"
# Verdict on a call that is wrong outside, and right with copies of the constants it was given.
RIGHT_WITH_COPIES = "right-with-copies"
# Verdict on a call that there was to be, had torch taken the constants that it was given.
REJECTED = "rejected"
# Verdicts on a call that torch's own check for NaN refuses: for good reason, or so it seems.
NAN_REFUSED, NAN_LIKELY = "nan-refused", "nan-likely"
# Verdict on a call for which eager and compiled code raise errors of different types.
OTHER_ERROR = "other-error"
# Said of a call that is checked without copies.
TOO_LARGE_TO_COPY = "too large to copy"
# Said of a call of which no other rank knows.
ANSWERED = "collectives answered without the other ranks"
# Verdict on a function that returns when compiled, though its Python code raises.
NOT_RAISED = "not-raised"


class GraphCall(Event, kind="graph-call"):
    """A checked call of a compiled graph begins."""

    compile: str
    call: int


class GraphReturned(Event, kind="graph-returned"):
    """A checked call of a compiled graph ends."""

    compile: str
    call: int


class EagerReturned(Event, kind="eager-returned"):
    """Eager is through with the call; compiled code comes next."""

    seconds: float


class CompiledReturned(Event, kind="compiled-returned"):
    """Compiled code has returned from the call; its values are judged next, which may take long."""


class CallsUnchecked(Event, kind="calls-unchecked"):
    """A graph has been called more often than calls are checked."""

    compile: str


class CallsShared(Event, kind="calls-shared"):
    """A rank leaves calls of a graph to the other ranks, which check them."""

    compile: str


class SizesTried(Event, kind="sizes-tried"):
    """A package was called at sizes that the program does not use. text: which graph and sizes."""

    text: str


class Check(Event, kind="check"):
    """A call of a compiled graph was compared with eager.

    verdict: right, within-rounding, unsteady, skipped, eager-fails, wrong, error; other-error, if
    compiled code raises an error of another type than eager; outside, before a call with inputs
    that it was not compiled for, and wrong-outside if it is then wrong;
    right-with-copies, if it is right once constants that are views are replaced by copies;
    rejected, if torch raised an error instead of taking new constants before it;
    nan-refused, if nan_asserts raised because of the program's own NaN; nan-likely, if there is
    such NaN, but it may not be what it raised for; is_exact: the same to the last bit; eager,
    compiled: seconds of the call, with its backward pass.
    """

    compile: str
    call: int
    verdict: str
    text: str
    is_exact: bool | None = None
    eager: float = 0.0
    compiled: float = 0.0


class NotedDifference(Event, kind="difference"):
    """A result differs from eager's, which is not a failure. where: an output, or a kernel.

    aspect: stride or sharing, if it lies otherwise in memory; value, if a kernel differs by more
    than rounding explains, though the results do not; warning, if only eager gives one: where is a
    function then, and compile is empty.
    """

    compile: str
    call: int = 0
    aspect: str
    where: str
    text: str = ""


class CppLibraryTaken(Event, kind="cpp-library-taken"):
    """A package brings a copy of libstdc++: the one that torch uses was made to come first.

    package: its file, empty if it was only compiled so far; source: the line that loads it.
    """

    package: str = ""
    source: str = ""


class CallableCheck(Event, kind="callable-check"):
    """A whole function was compared with eager.

    verdict: right, differs; unsteady, if eager itself differs; not-raised, if only eager raises.
    """

    function: str
    call: int
    verdict: str
    text: str


class KernelLaunched(Event, kind="launch"):
    """A kernel is about to run, in a process that tries something out."""

    kernel: str


class ClaimMade(Event, kind="claim"):
    """The doctor claims something of a failure that it has found.

    fact: the kind of the claim; data: what it says; shown_by: what shows it.
    """

    fact: str
    data: Mapping[str, Any]
    shown_by: str = ""


class CandidateJudged(Event, kind="judged"):
    """The search has tried a candidate. failure: how it failed; None if it did not."""

    candidate: str
    failure: Any = None


class GrowthMeasured(Event, kind="growth"):
    """A graph was compiled at several sizes. growth: what each of them cost."""

    growth: Mapping[str, Any]


class Said(Event, kind="said"):
    """The doctor inside the program says what it does, for whoever watches."""

    text: str


class CallShadowed(Event, kind="shadow"):
    """A call of a compiled graph was also made in eager and float64, by the sentinel.

    spent, seen: seconds that shadowing has taken so far, and that the program had for itself.
    """

    compile: str
    call: int
    values: int
    spent: float
    seen: float


class ShadowsEnded(Event, kind="shadows-ended"):
    """The sentinel shadows no more calls of a graph, and says why."""

    compile: str
    text: str


class BiasFound(Event, kind="bias"):
    """The error of a value of a compiled graph always points the same way. kept: the folder of the
    call."""

    compile: str
    value: str
    direction: str
    bias: float
    call: int
    shadowed: int
    text: str
    kept: str


# --- Reading one back -----------------------------------------------------------------------------


def read_entry(stream: str, found: dict[str, Any]) -> Entry[Event]:
    """Decode an entry from parsed JSON, field by field.

    Fields that the class of the event does not have are ignored.
    """
    number, time, kind = found.pop("n", None), real(found.pop("t", None)), found.pop("kind")
    known = KINDS.get(kind)
    event = decode_any(known, found) if known else UnknownEvent(kind=kind, fields=found)
    return Entry(stream, number if isinstance(number, int) else -1, time, event)
