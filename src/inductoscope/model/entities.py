"""The entities of a recorded run: processes, compiles, graphs, autotuning, native compiles.

    Recording
    ├── Process                      one per stream: a rank, a worker, a forked child
    ├── Check, CallableCheck         what the doctor compared with eager
    ├── NativeCompile                one per run of a native compiler
    └── Compile                      one per attempt of Dynamo at a frame
        ├── GraphState               as Dynamo, AOTAutograd and the passes left it
        ├── GraphBreak, Recompile, CacheLookup, CompileError
        ├── PassChange
        └── InductorGraph            one per graph that Inductor compiled (forward, backward)
            ├── LoweredNode, FusionRound, FusionPair, Fusion
            └── Kernel, Reuse, Autotune

Events are the data. What one event says whole is that event, imported from `recording.events`; what
several say together is a class here: it has the fields of the first event, and adds what others
say. Texts are not held: a digest names the payload, and `Recording.payload` reads it on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from inductoscope.model.payload_cache import Made, PayloadCache
from inductoscope.recording.events import (
    CacheLookup,
    CallableCheck,
    Check,
    CompileFailed,
    CompileStart,
    Entry,
    Event,
    ExceptionUncaught,
    Exited,
    Fusion,
    FusionPair,
    FusionRound,
    GraphBreak,
    GraphState,
    Kernel,
    LaunchConfigs,
    LoweredNode,
    NativeEnd,
    NotedDifference,
    PassChange,
    ProcessStart,
    Recompiled,
    Reuse,
    Settings,
    StageStart,
)
from inductoscope.recording.reader import RecordingReader

Joined = TypeVar("Joined")


def joined(kind: type[Joined], event: Event, **more: Any) -> Joined:
    return kind(**{**vars(event), **more})


class NativeCompile(NativeEnd):
    """One run of a native compiler. `seconds` is None while it has not ended."""

    process: str = ""


class Recompile(Recompiled):
    """A frame whose guards failed: compiled anew, or refused if torch's `limit` was reached."""

    limit: str = ""


class CompileError(CompileFailed):
    """An exception that left the compiler, unless Dynamo swallowed it."""

    swallowed: bool = False


class UncaughtException(ExceptionUncaught):
    """An uncaught exception of a process, or of one of its threads if `thread` is set."""

    # Time of the event: the first failure may have caused the others.
    at: float = 0.0


# Name prefixes of generated choices; all other choices are library calls.
_GENERATED = ("triton_", "cpp_", "cutlass_", "cutedsl_", "rocm_", "pallas_")


@dataclass(frozen=True)
class TimedChoice:
    name: str
    description: str
    milliseconds: float | None
    failed: bool
    # None until the choice's compile has ended, or if it needs none.
    compile_seconds: float | None = None
    compile_started: bool = False
    error: str = ""

    @property
    def is_generated(self) -> bool:
        """Whether the choice is a kernel that Inductor generated, not a call of a library."""
        return self.name.startswith(_GENERATED)

    @property
    def state(self) -> str:
        """The outcome of the choice: its time, failed, still compiling, or not timed."""
        if self.failed or self.error:
            return "failed"
        if self.milliseconds is not None:
            return f"{self.milliseconds:.4f} ms"
        if self.compile_started and self.compile_seconds is None:
            return "still compiling"
        return "not timed"


@dataclass(frozen=True)
class Autotune:
    operation: str
    choices: tuple[TimedChoice, ...]
    # The name of the choice that torch took; empty if it took none so far.
    taken: str
    # Shapes and types of the tuned inputs; empty in older recordings.
    inputs: tuple[str, ...] = ()

    @property
    def timed(self) -> tuple[TimedChoice, ...]:
        found = [choice for choice in self.choices if choice.milliseconds is not None]
        return tuple(sorted(found, key=lambda choice: choice.milliseconds or 0.0))

    @property
    def library(self) -> TimedChoice | None:
        """The fastest library call; None if none was timed."""
        return next((choice for choice in self.timed if not choice.is_generated), None)

    @property
    def chosen(self) -> TimedChoice | None:
        """The choice that torch took; None if it was not timed."""
        return next((choice for choice in self.timed if choice.name == self.taken), None)

    @property
    def winner(self) -> str:
        """The name of the choice that torch took because of its time; else empty."""
        return self.chosen.name if self.chosen else ""

    @property
    def gain(self) -> float | None:
        """The speedup of the winner over the fastest library call; None unless both were timed."""
        library, chosen = self.library, self.chosen
        if library is None or chosen is None or not chosen.milliseconds:
            return None
        return (library.milliseconds or 0.0) / chosen.milliseconds


@dataclass(frozen=True)
class InductorGraph:
    """A graph that Inductor compiled or loaded from its cache."""

    key: str
    phase: str
    cached: bool
    finished: bool
    seconds: Mapping[str, float]
    lowered: tuple[LoweredNode, ...] = ()
    scheduled_before: str = ""
    scheduled_after: str = ""
    rounds: tuple[FusionRound, ...] = ()
    pairs: tuple[FusionPair, ...] = ()
    fusions: tuple[Fusion, ...] = ()
    kernels: tuple[Kernel, ...] = ()
    wrapper: str = ""
    wrapper_path: str = ""
    buffers: str = ""
    # One per list of scheduler nodes, since subgraphs have their own.
    memory: tuple[str, ...] = ()
    reuses: tuple[Reuse, ...] = ()
    autotunes: tuple[Autotune, ...] = ()


class Compile(CompileStart):
    """One attempt of Dynamo to compile a frame of the user's code."""

    process: str
    outcome: str
    reason: str = ""
    seconds: float = 0.0
    stage_seconds: Mapping[str, float] = field(default_factory=dict)
    graphs: tuple[GraphState, ...] = ()
    passes: tuple[PassChange, ...] = ()
    decompositions: Mapping[str, int] = field(default_factory=dict)
    settings: Settings | None = None
    guard_count: int = 0
    guards: str = ""
    # Microseconds of one evaluation of all guards, and the slowest values; None if unknown.
    guard_microseconds: float | None = None
    costly_guards: tuple[tuple[str, float], ...] = ()
    # The reasons, as torch logs them, for skipping CUDA graphs that were requested.
    cudagraph_skips: tuple[str, ...] = ()
    breaks: tuple[GraphBreak, ...] = ()
    recompile: Recompile | None = None
    caches: tuple[CacheLookup, ...] = ()
    inductor: tuple[InductorGraph, ...] = ()
    # Digests of the C++ libraries requested, whether compiled or cached.
    libraries: tuple[str, ...] = ()
    errors: tuple[CompileError, ...] = ()

    @property
    def id(self) -> str:
        """The compile's number, such as 0/0."""
        return self.compile

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""

    @property
    def is_recompile(self) -> bool:
        """Whether the frame was compiled anew; False if torch refused to."""
        return self.recompile is not None and not self.recompile.limit


class Process(ProcessStart):
    stream: str
    torch: Mapping[str, Any]
    ended: bool
    # The reason why the process stopped recording, and the number of dropped events.
    stopped: str
    dropped: int
    # The open stages, which tell where the process was when it died.
    unfinished: tuple[StageStart, ...]
    views_off: tuple[str, ...]
    hook_errors: tuple[str, ...]
    # The compile whose checked graph was running when the process last wrote an event.
    call: str = ""
    # Whether the compiled code of that call had returned, and its values were judged.
    is_judged: bool = False
    uncaught: tuple[UncaughtException, ...] = ()


@dataclass(frozen=True)
class Ending:
    """The exit code or signal of the recorded command, as far as it has ended."""

    exit_code: int
    signal: int | None
    seconds: float
    # The reason why the doctor ended the command; empty if it did not.
    by_tool: str = ""


def ending_of(event: Exited) -> Ending:
    return Ending(event.exit_code, event.signal, event.seconds, event.by_tool)


@dataclass(frozen=True)
class Recording:
    path: str
    manifest: Mapping[str, Any]
    processes: tuple[Process, ...]
    compiles: tuple[Compile, ...]
    natives: tuple[NativeCompile, ...]
    ending: Ending | None
    damage: tuple[tuple[str, str], ...]
    unknown_events: Mapping[str, int]
    payloads: RecordingReader = field(repr=False, compare=False)
    # The pid of the command; 0 if the recording was made from inside the program.
    command_pid: int = 0
    launch_configs: tuple[LaunchConfigs, ...] = ()
    # The doctor's comparisons with eager, and the compiles with unchecked further calls.
    checks: tuple[Check, ...] = ()
    callable_checks: tuple[CallableCheck, ...] = ()
    noted: tuple[NotedDifference, ...] = ()
    unchecked: tuple[str, ...] = ()
    # The compiles whose calls were shared by the ranks of a job.
    shared: tuple[str, ...] = ()
    # The other sizes at which the doctor has called packages.
    sizes_tried: tuple[str, ...] = ()
    # Packages with a copy of libstdc++, by file, with the lines that load them.
    copies_of_cpp_library: tuple[tuple[str, str], ...] = ()
    # For an absent GPU: pairs of compile and deviation from a real one.
    target_notes: tuple[tuple[str, str], ...] = ()
    # The timed entries, and the time of each process's last event.
    timed: tuple[Entry[Event], ...] = field(default=(), repr=False, compare=False)
    latest: Mapping[str, float] = field(default_factory=dict, repr=False, compare=False)
    _kept: PayloadCache = field(default_factory=PayloadCache, init=False, repr=False, compare=False)

    def once(self, what: str, digests: tuple[str, ...], make: Callable[[], Made]) -> Made:
        """Memoize `make()` by `what` and the digests of the payloads that it reads."""
        return self._kept.once(
            (what, digests), make, lambda: sum(self.payloads.size(digest) for digest in digests)
        )

    def payload(self, digest: str) -> str:
        return self._kept.text(digest, self.payloads.payload) if digest else ""

    def data(self, digest: str) -> Any:
        return self.payloads.json_payload(digest) if digest else None

    def decoded(self, digest: str, decode: Callable[[bytes], Made]) -> Made | None:
        return self.payloads.decoded_payload(digest, decode) if digest else None

    @property
    def graphs(self) -> tuple[InductorGraph, ...]:
        return tuple(graph for compile_ in self.compiles for graph in compile_.inductor)
