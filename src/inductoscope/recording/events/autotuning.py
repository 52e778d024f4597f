"""Events about autotuning: the choices of an operation, their compiles and their timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.recording.events.base import Event


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
class LaunchConfigsTimed(Event):
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
