"""What is explained: a stage of the compiler, a verdict, a view."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class TorchSwitch:
    """A switch that torch itself offers."""

    # A log is a word for TORCH_LOGS, a setting a name of a config module, a variable one of the
    # environment.
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
    """A setting of Inductor; of another part of torch where the name says so."""
    full = name if name.startswith("torch.") else f"torch._inductor.config.{name}"
    return TorchSwitch("setting", full, what)


def variable(name: str, what: str) -> TorchSwitch:
    """A variable of the environment."""
    return TorchSwitch("variable", name, what)


@dataclass(frozen=True)
class StageEntry:
    """One stage of the compiler, or one view of what it did."""

    name: str
    # One sentence that stands alone.
    summary: str
    # What goes in, what comes out, how.
    does: str
    # Files of torch.
    lives: tuple[str, ...] = ()
    notions: tuple[tuple[str, str], ...] = ()
    look_here_when: tuple[str, ...] = ()
    symptoms: tuple[str, ...] = ()
    # Symptoms that look like this stage's and are another's: (symptom, stage).
    elsewhere: tuple[tuple[str, str], ...] = ()
    flags: tuple[TorchSwitch, ...] = ()
    # Commands of inductoscope, with what they show.
    commands: tuple[tuple[str, str], ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Topic:
    """A verdict of the doctor, a word for how sure it is, or a view of the page."""

    name: str
    summary: str
    what_to_do: str
