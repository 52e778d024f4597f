"""Tries endings: real programs, real signals, real commands."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battery.endings.commands import Commands
from battery.endings.ending import (
    ATTACH,
    COMMANDS,
    DOCTOR,
    LOGS,
    READY,
    REPORT,
    RUN,
    SHOW,
    SHOW_EXAMINED,
    ProgramEnding,
    Said,
)
from inductoscope.hangs.logs.answers import Kind
from inductoscope.verdicts import VERDICTS

_TOOL = (sys.executable, "-m", "inductoscope")
_SCRIPT, _NOTEBOOK = "script.py", "notebook.ipynb"


@dataclass(frozen=True)
class Heard:
    """Output of a command about an ending, and whether it is right."""

    ending: str
    command: str
    exit_code: int
    first_line: str
    is_right: bool


def try_ending(
    ending: ProgramEnding, folder: Path, only: Sequence[str] = (), probed: Path | None = None
) -> Iterator[Heard]:
    """Output of every command about an ending.

    `only` names commands; `probed` is a cache in which torch has found out what the machine can.
    """
    place = _Place(ending, folder, probed)
    for command in COMMANDS:
        if command in ending.said and (not only or command in only):
            yield _judged(ending, command, *place.asked(command))


def _judged(ending: ProgramEnding, command: str, code: int, output: str) -> Heard:
    line = first_line(output)
    said: Said = ending.said[command]
    is_right = code == said.exit_code and re.search(said.first_line, line) is not None
    return Heard(ending.name, command, code, line, is_right)


_WORDS = ("inductoscope", "doctor", *(v.name for v in VERDICTS), *(kind.value for kind in Kind))
_BEGINS = re.compile(rf"(?:{'|'.join(map(re.escape, _WORDS))}): ")
# What `attach` says before it looks.
_FIRST_OF_ALL = re.compile(r"inductoscope: watching .* for [\d.]+ s$")


def first_line(output: str) -> str:
    """The first line of what the tool itself says, with the lines that it goes on in."""
    lines = [line.rstrip() for line in output.splitlines()]
    lines = [line for line in lines if not _FIRST_OF_ALL.match(line)]
    start = next((n for n, line in enumerate(lines) if _BEGINS.match(line)), None)
    if start is None:
        return next((line for line in lines if line), "")
    end = next((n for n in range(start + 1, len(lines)) if _is_next(lines[n])), len(lines))
    return " ".join(lines[start:end])


def _is_next(line: str) -> bool:
    return not line or line.startswith((" ", "-")) or _BEGINS.match(line) is not None


class _Place:
    """A folder in which one ending is tried; what one command has written, others read."""

    def __init__(self, ending: ProgramEnding, folder: Path, probed: Path | None) -> None:
        self._ending, self._folder = ending, folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _SCRIPT).write_text(ending.script)
        if ending.is_notebook:
            (folder / _NOTEBOOK).write_text(json.dumps(_notebook(ending.script)))
        self._commands = Commands(folder, probed)
        self._recording: Path | None = None
        self._ended: int | None = None

    def asked(self, command: str) -> tuple[int, str]:
        """The exit code of a command, and all that it printed."""
        ways: dict[str, Callable[[], tuple[int, str]]] = {
            RUN: self._run,
            SHOW: lambda: self._read(SHOW, self._recorded()),
            REPORT: lambda: self._read(REPORT, self._recorded(), "-o", "page.html"),
            DOCTOR: self._examine,
            SHOW_EXAMINED: lambda: self._read(SHOW, self._examined()),
            LOGS: lambda: self._read(LOGS, self._log()),
            ATTACH: self._attach,
        }
        return ways[command]()

    # --- under the tool ---------------------------------------------------------------------------

    def _run(self) -> tuple[int, str]:
        """The second time if once is not enough."""
        for time in range(2 if self._ending.twice else 1):
            self._recording = self._folder / f"recording-{time}"
            found = self._under(RUN, self._recording)
        return found

    def _examine(self) -> tuple[int, str]:
        return self._under(DOCTOR, self._folder / "examined")

    def _under(self, command: str, output: Path) -> tuple[int, str]:
        options = self._ending.options.get(command, ())
        words = [*_TOOL, command, "--output", str(output), *options, *self._program]
        interruption = self._ending.interruptions.get(command)
        # The doctor keeps what the program prints.
        return self._commands.run(words, interruption, f"{output.name}/**/output.txt")

    # --- on its own -------------------------------------------------------------------------------

    def _log(self) -> Path:
        """Output of the program with torch's logs."""
        ran = self._commands.run_plainly(
            self._without_tool, self._ending.interruptions.get(LOGS), TORCH_LOGS="+inductor"
        )
        self._ended = ran.pid
        return ran.printed

    def _attach(self) -> tuple[int, str]:
        words = [*_TOOL, ATTACH, "--seconds", "5"]
        if f'print("{READY}"' in self._ending.script:
            return self._commands.run_beside(self._without_tool, words)
        if self._ended is None:
            self._log()
        return self._commands.run([*words, str(self._ended)])

    # --- what was written -------------------------------------------------------------------------

    def _recorded(self) -> Path:
        """The recording by `run`, or the program itself."""
        if self._ending.is_notebook:
            self._commands.run_beside(self._without_tool, ["true"])
            return self._commands.last_recording
        if self._recording is None:
            self._run()
        assert self._recording is not None
        return self._recording

    def _examined(self) -> Path:
        folder = self._folder / "examined"
        if not folder.exists():
            self._examine()
        return folder

    def _read(self, command: str, what: Path, *options: str) -> tuple[int, str]:
        return self._commands.run([*_TOOL, command, str(what), *options])

    @property
    def _program(self) -> list[str]:
        names = {"SCRIPT": _SCRIPT, "NOTEBOOK": _NOTEBOOK, "PYTHON": sys.executable}
        return [names.get(word, word) for word in self._ending.command]

    @property
    def _without_tool(self) -> list[str]:
        words = self._program
        return words if words[0] == sys.executable else [sys.executable, _SCRIPT]


def _notebook(code: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": [],
        "source": code.splitlines(keepends=True),
    }
    return {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
