"""What a procedure of the skill consists of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JsonField:
    """A part of what a command writes; `a[].b` is b of every item of a."""

    path: str
    meaning: str


@dataclass(frozen=True)
class Procedure:
    """From a symptom to a report."""

    name: str
    symptoms: tuple[str, ...]
    # The first is the one to type; the others are for what its comment says.
    commands: tuple[tuple[str, str], ...]
    # Of the JSON of the first command.
    fields: tuple[JsonField, ...]
    following: tuple[str, ...]
    report: str

    @property
    def command(self) -> str:
        """The first command's name."""
        return self.commands[0][0].split()[1]
