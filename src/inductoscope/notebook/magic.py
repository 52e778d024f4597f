"""The cell magic: what is typed after it, and what happens then."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any, NoReturn

from inductoscope.errors import InductoscopeError, UsageError
from inductoscope.notebook.examined_cell import Examination, examine
from inductoscope.notebook.recorded_cell import run_recorded_cell

NAME = "inductoscope"
_RUN, _DOCTOR = "run", "doctor"


def register(shell: Any) -> None:
    """Let `shell` know `%%inductoscope`."""
    from IPython.core.error import UsageError as ShellUsageError
    from IPython.core.magic import output_can_be_silenced

    @output_can_be_silenced  # type: ignore[untyped-decorator,unused-ignore]
    def inductoscope(line: str, cell: str) -> Any:
        """Run a cell recorded, or examine it: %%inductoscope [run | doctor] [OPTIONS]

        run      here, so that its variables stay: --fresh, --output DIR, --no-page
        doctor   as a script in another process: --cells 1-3 puts earlier cells before it,
                 --no-page; all options of 'inductoscope doctor'
        """
        # IPython leaves this frame out of tracebacks.
        __tracebackhide__ = True
        try:
            return _do(shell, line, cell)
        except InductoscopeError as error:
            # Shown as one line, without a traceback.
            raise ShellUsageError(str(error)) from None

    shell.register_magic_function(inductoscope, magic_kind="cell", magic_name=NAME)


def unregister(shell: Any) -> None:
    """The magic is not known any more."""
    shell.magics_manager.magics["cell"].pop(NAME, None)


def _do(shell: Any, line: str, cell: str) -> Any:
    __tracebackhide__ = True
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise UsageError(f"%%{NAME} {line}: {error}.") from error
    kind = words.pop(0) if words and words[0] in (_RUN, _DOCTOR) else _RUN
    if kind == _RUN:
        return _record(shell, words, cell)
    return _examine(shell, words, cell)


def _record(shell: Any, words: list[str], cell: str) -> Any:
    __tracebackhide__ = True
    parser = _Parser(f"%%{NAME} {_RUN}")
    parser.add_argument("--fresh", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--no-page", action="store_true")
    given = parser.parse_args(words)
    return run_recorded_cell(
        shell, cell, fresh=given.fresh, output=given.output, with_page=not given.no_page
    )


def _examine(shell: Any, words: list[str], cell: str) -> None:
    parser = _Parser(f"%%{NAME} {_DOCTOR}")
    parser.add_argument("--cells", default="")
    parser.add_argument("--no-page", action="store_true")
    given, passed_on = parser.parse_known_args(words)
    examine(shell, cell, Examination(given.cells, tuple(passed_on), with_page=not given.no_page))


class _Parser(argparse.ArgumentParser):
    """Raises where the one of a program would end the process."""

    def __init__(self, name: str) -> None:
        super().__init__(name, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. %%{NAME}? shows the options.")
