"""One way to end: a program, what happens to it, and what each command has to say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

RUN, DOCTOR, SHOW, REPORT, ATTACH, LOGS = "run", "doctor", "show", "report", "attach", "logs"
COMMANDS = (RUN, DOCTOR, SHOW, REPORT, ATTACH, LOGS)


@dataclass(frozen=True)
class Said:
    """The exit code of a command, and a pattern that its first line has to match."""

    exit_code: int
    first_line: str


@dataclass(frozen=True)
class ProgramEnding:
    """A program that ends in one particular way."""

    name: str
    # In a few words, for the table.
    what: str
    script: str
    # What each command says; `show` and `report` read the recording that `run` makes, `logs` reads
    # what the program printed with TORCH_LOGS, `attach` looks at it while it runs.
    said: Mapping[str, Said]
    # A signal that is sent once the program has printed "now".
    signal: int | None = None
    # Run it twice; what is said is about the second time.
    twice: bool = False
    # Options of the doctor, and of `run`.
    doctor_options: tuple[str, ...] = ()
    run_options: tuple[str, ...] = ()
    # The words that start it; the script's name is put in for SCRIPT.
    command: tuple[str, ...] = ("SCRIPT",)
    environment: Mapping[str, str] = field(default_factory=dict)
