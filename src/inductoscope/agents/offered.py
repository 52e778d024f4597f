"""Which commands agents are offered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Of every command: they are for a terminal, or the server sets them.
FOR_A_TERMINAL = frozenset({"json", "quiet", "no_pager", "help"})


@dataclass(frozen=True)
class OfferedCommand:
    """A command that is a tool, called as it is typed."""

    words: tuple[str, ...]
    # What it does besides reading: writes files, or runs a program or processes of the user's.
    effect: Literal["reads", "writes", "runs"]
    # Options that make no sense in a call, besides those for a terminal.
    hidden: frozenset[str] = frozenset()
    # The program's own output comes out of it, too.
    passes_output_on: bool = False

    @property
    def name(self) -> str:
        return self.words[0]


# Not offered: what never ends (serve), what deletes (recordings prune), what sets up a shell or
# an agent (completion, mcp, skill).
OFFERED: tuple[OfferedCommand, ...] = (
    OfferedCommand(("doctor",), "runs"),
    # The JSON has the program's exit code and findings; the tool's own exit code says no more.
    OfferedCommand(("run",), "runs", frozenset({"findings_exit_code"}), passes_output_on=True),
    OfferedCommand(("show",), "reads", frozenset({"list"})),
    OfferedCommand(("report",), "writes"),
    OfferedCommand(("fusion",), "reads"),
    OfferedCommand(("bounds",), "reads"),
    OfferedCommand(("profile",), "runs", passes_output_on=True),
    OfferedCommand(("diff",), "reads"),
    OfferedCommand(("export",), "writes"),
    OfferedCommand(("recordings", "list"), "reads"),
    OfferedCommand(("explain",), "reads"),
    # It would wait for a log that may grow for ever.
    OfferedCommand(("logs",), "reads", frozenset({"follow", "seconds"})),
    OfferedCommand(("preflight",), "runs"),
    OfferedCommand(("attach",), "runs"),
    OfferedCommand(("kernel",), "writes"),
    OfferedCommand(("aoti",), "runs"),
    OfferedCommand(("env",), "reads"),
)
