"""Events about processes, and about the recording itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inductoscope.recording.events.base import Event


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
