"""What `explain` explains: stages of the compiler, verdicts, views of the page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TorchSwitch:
    """A switch that torch offers."""

    # A word for TORCH_LOGS, a name in a config module, or an environment variable.
    kind: Literal["log", "setting", "variable"]
    name: str
    what: str

    @property
    def text(self) -> str:
        """As a user types it."""
        return f"TORCH_LOGS={self.name}" if self.kind == "log" else self.name


def log(name: str, what: str) -> TorchSwitch:
    """A word for TORCH_LOGS."""
    return TorchSwitch("log", name, what)


def setting(name: str, what: str) -> TorchSwitch:
    """A setting of Inductor, or of another part of torch if `name` is a full path."""
    full = name if name.startswith("torch.") else f"torch._inductor.config.{name}"
    return TorchSwitch("setting", full, what)


def variable(name: str, what: str) -> TorchSwitch:
    """An environment variable."""
    return TorchSwitch("variable", name, what)


@dataclass(frozen=True)
class StageEntry:
    """One stage of the compiler, or one view of what it did."""

    name: str
    # One sentence that makes sense alone.
    summary: str
    # What goes in, what comes out, how.
    does: str
    # torch's source files.
    lives: tuple[str, ...] = ()
    notions: tuple[tuple[str, str], ...] = ()
    look_here_when: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()
    # Symptoms that look like this stage's but belong to another: (symptom, stage).
    elsewhere: tuple[tuple[str, str], ...] = ()
    flags: tuple[TorchSwitch, ...] = ()
    # inductoscope commands, with what they show.
    commands: tuple[tuple[str, str], ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topic:
    """A verdict of the doctor, a confidence level, or a view of the page."""

    name: str
    summary: str
    what_to_do: str
