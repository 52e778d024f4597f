"""One way to end: a program, what happens to it, and what each command has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RUN, SHOW, REPORT, DOCTOR = "run", "show", "report", "doctor"
LOGS, ATTACH = "logs", "attach"
# `show` on the recording that the doctor made: it begins with the verdict.
SHOW_EXAMINED = "show-examined"

# In the order in which they are tried: some read what another one has written.
COMMANDS = (RUN, SHOW, REPORT, DOCTOR, SHOW_EXAMINED, LOGS, ATTACH)
# What is tried together: none of a group needs another group.
RECORDED, EXAMINED, LOOKED_AT = (RUN, SHOW, REPORT), (DOCTOR, SHOW_EXAMINED), (LOGS, ATTACH)

# What a program prints when it is time to interrupt it, or to attach to it.
READY = "now"


@dataclass(frozen=True)
class Said:
    """The exit code of a command, and a pattern that its first line has to match."""

    exit_code: int
    first_line: str


@dataclass(frozen=True)
class Interruption:
    """A signal that is sent once these words are in what the command, or its program, printed."""

    signal: int
    after: str = READY


@dataclass(frozen=True)
class ProgramEnding:
    """A program that ends in one particular way."""

    name: str
    # In a few words, for the table.
    what: str
    script: str
    # What each command says. `show` and `report` read the recording that `run` makes, `logs` reads
    # what the program printed with TORCH_LOGS, `attach` looks at the program: while it runs, if it
    # says that it is READY, and else after its end.
    said: Mapping[str, Said]
    # The commands under which the program is interrupted, and how.
    interruptions: Mapping[str, Interruption] = field(default_factory=dict)
    # Run it twice; what is said is about the second time.
    twice: bool = False
    # More words of the commands.
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The words that start it; names of files are put in for SCRIPT, PYTHON and NOTEBOOK.
    command: tuple[str, ...] = ("SCRIPT",)
    # Why a command has nothing to read.
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_notebook(self) -> bool:
        """The script is the only cell of a notebook, and records itself."""
        return self.command == ("NOTEBOOK",)
