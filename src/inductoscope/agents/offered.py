"""Which commands agents are offered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Of every command: they are for a terminal, or the server sets them.
FOR_A_TERMINAL = frozenset({"json", "quiet", "no_pager", "help"})
# What the name of a tool ends with that has all parameters of a command, also those that act.
ACTING = "_and_act"


@dataclass(frozen=True)
class OfferedCommand:
    """A command that is a tool, called as it is typed."""

    words: tuple[str, ...]
    # The most that it does, whatever its parameters: reads; writes files, perhaps over others;
    # or executes code that is not the tool's.
    effect: Literal["reads", "writes", "runs"]
    # Options that make no sense in a call, besides those for a terminal.
    hidden: frozenset[str] = frozenset()
    # The program's own output comes out of it, too.
    passes_output_on: bool = False
    # Parameters that another tool of the same command does not have, because of their effect.
    acting: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"{self.words[0]}{ACTING}" if self.acting else self.words[0]


def _reading_and_acting(
    word: str, acting: frozenset[str], hidden: frozenset[str] = frozenset()
) -> tuple[OfferedCommand, OfferedCommand]:
    """A command as two tools: a client may let an agent read without asking the user first."""
    return (
        OfferedCommand((word,), "reads", hidden | acting),
        OfferedCommand((word,), "runs", hidden, acting=acting),
    )


# Not offered: what never ends (serve), what deletes (recordings prune), what sets up a shell or
# an agent (completion, mcp, skill).
OFFERED: tuple[OfferedCommand, ...] = (
    OfferedCommand(("doctor",), "runs"),
    # The JSON has the program's exit code and findings; the tool's own exit code says no more.
    OfferedCommand(("run",), "runs", frozenset({"findings_exit_code"}), passes_output_on=True),
    *_reading_and_acting(
        "show", frozenset({"target", "runnable", "to"}), hidden=frozenset({"list"})
    ),
    # Of --target.
    OfferedCommand(("report",), "runs"),
    *_reading_and_acting("fusion", frozenset({"try", "timeout"})),
    *_reading_and_acting("bounds", frozenset({"try", "sizes", "timeout"})),
    OfferedCommand(("profile",), "runs", passes_output_on=True),
    OfferedCommand(("diff",), "reads"),
    OfferedCommand(("export",), "writes"),
    OfferedCommand(("recordings", "list"), "reads"),
    OfferedCommand(("explain",), "reads"),
    # It would wait for a log that may grow for ever.
    *_reading_and_acting(
        "logs",
        frozenset({"filter", "page", "executor", "any_worker"}),
        hidden=frozenset({"follow", "seconds"}),
    ),
    OfferedCommand(("preflight",), "runs"),
    OfferedCommand(("attach",), "runs"),
    OfferedCommand(("kernel",), "writes"),
    OfferedCommand(("aoti",), "runs"),
    *_reading_and_acting("env", frozenset({"python"})),
)
