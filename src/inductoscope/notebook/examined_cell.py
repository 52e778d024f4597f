"""Runs the doctor on a cell, as a script in another process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.notebook.inline import show_inline
from inductoscope.processes.guarded import GuardedCommand
from inductoscope.processes.tool_command import tool_command, tool_environment
from inductoscope.views.report.doctor import print_verdict
from inductoscope.views.report.plain_text import visible
from inductoscope.views.report.terminal import Printer

# What loads the tool or calls it; what follows in such a cell is plain Python.
_OWN_MAGIC = re.compile(r"^(%%inductoscope\b.*|%(re)?load_ext +inductoscope *)$", re.MULTILINE)
# For the doctor, to end what it has started.
_GRACE = 5.0
_ALONE = (
    "The cell ran alone, in a new process: it does not know what other cells have defined. Put "
    "them before it: %%inductoscope doctor --cells 1-3"
)


@dataclass(frozen=True)
class Examination:
    """What was asked for: cells to put before the cell, and options for the doctor."""

    cells: str
    options: tuple[str, ...]
    with_page: bool


def examine(shell: Any, cell: str, wanted: Examination) -> None:
    """Write the cell to a script, run the doctor on it, and show the verdict."""
    script = _script(shell, cell, wanted.cells)
    with tempfile.TemporaryDirectory(prefix="inductoscope-cell-") as place:
        answer = Path(place) / "verdict.json"
        (Path(place) / "cell.py").write_text(script, "utf-8")
        words = ["doctor", f"--json={answer}", *wanted.options, "--", f"{place}/cell.py"]
        said = _run(words)
        verdict = _read(answer, without=f"{place}/")
    if verdict is None:
        raise UsageError(said[-1].removeprefix("inductoscope: ") if said else "It said nothing.")
    printed = io.StringIO()
    print_verdict(Printer(printed, is_terminal=False), verdict)
    text = printed.getvalue()
    if "NameError" in verdict["summary"]:
        text += f"\n{_ALONE}\n"
    show_inline(shell, text, Path(verdict["recording"]) if wanted.with_page else None)


def _script(shell: Any, cell: str, cells: str) -> str:
    """Lines have the numbers that they have in the cell, where the first line is the magic's."""
    source = f"{_earlier(shell, cells)}\n{cell}" if cells else cell
    if "get_ipython()" in shell.transform_cell(source):
        raise UsageError(
            "The doctor runs the cell as a script, which cannot have IPython's % and ! commands. "
            "Remove them, or record the cell with %%inductoscope."
        )
    # As in the notebook, modules beside it can be imported.
    first = f"import sys; sys.path.insert(0, {os.getcwd()!r})"
    return f"{'#' if '__future__' in source else first}\n{source}"


def _earlier(shell: Any, cells: str) -> str:
    """The cells with these numbers, as they were typed, but for magics of our own."""
    found = [code for *_, code in shell.history_manager.get_range_by_str(cells, raw=True)]
    if not found:
        raise UsageError(
            f"--cells {cells} names no cell that has run. Give the numbers of In [ ], such as 1-3."
        )
    return _OWN_MAGIC.sub("#", "\n".join(found))


def _run(words: list[str]) -> list[str]:
    """The command to its end, its progress printed; if the cell is interrupted, it ends, too."""
    command = GuardedCommand(tool_command(words), folder=Path.cwd(), environment=tool_environment())
    said = []
    try:
        for line in command.lines():
            said.append(visible(line))
            print(said[-1], flush=True)
    finally:
        command.end(grace=_GRACE)
    return said


def _read(path: Path, *, without: str) -> dict[str, Any] | None:
    """The verdict; the folder of the script is left out, since it is gone."""
    with contextlib.suppress(OSError):
        found = json.loads(path.read_text("utf-8").replace(without, ""))
        if not isinstance(found, dict):
            raise ToolFailure("The doctor's answer cannot be read.")
        return found
    return None
