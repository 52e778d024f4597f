"""Events about compiles: Dynamo's frames, the stages of the compiler, errors, caches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inductoscope.recording.events.base import Event


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
class GraphBroke(Event):
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
class CacheLookedUp(Event):
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
class SettingsUsed(Event):
    """What a frame is compiled with, where it differs from torch's defaults.

    config: values of config modules; arguments: of torch.compile; marked: calls of mark_dynamic and
    the like; defaults: what torch itself sets where config differs.
    """

    kind = "settings"
    compile: str = ""
    config: Mapping[str, str] = field(default_factory=dict)
    arguments: Mapping[str, str] = field(default_factory=dict)
    marked: tuple[str, ...] = ()
    defaults: Mapping[str, str] = field(default_factory=dict)


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
