"""`%%inductoscope`: runs a cell recorded or examined, and shows the result below it."""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import re
import shlex
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NoReturn

from inductoscope.api import LiveRecording, record
from inductoscope.doctor.verdict import Verdict, verdict_of
from inductoscope.errors import InductoscopeError, ToolFailure, UsageError
from inductoscope.model.fold import load
from inductoscope.processes.children import GuardedCommand, tool_command, tool_environment
from inductoscope.recording.values import members
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.document import page_text
from inductoscope.views.plain_text import visible
from inductoscope.views.report.terminal import Printer
from inductoscope.views.report.verdict import print_verdict

# A notebook keeps what its cells show: a larger page would make it slow to open and to save.
_LARGEST_PAGE = 6_000_000
_STYLE = "width:100%;height:640px;border:1px solid #8886;border-radius:4px"


def show_inline(shell: Any, text: str, recording: Path | None) -> None:
    shown = f"<pre>{escape(text)}</pre>"
    if recording is not None:
        shown += _frame(recording)
    shell.display_pub.publish({"text/plain": text, "text/html": shown})


def _frame(recording: Path) -> str:
    """Embed the page in a sandboxed frame that cannot reach the notebook."""
    try:
        page = page_text(Contents(load(recording)))
    except InductoscopeError as error:
        return f"<pre>{escape(f'The page cannot be shown: {error}')}</pre>"
    if len(page) > _LARGEST_PAGE:
        told = f"The page is too large for a notebook: inductoscope report {recording}"
        return f"<pre>{escape(told)}</pre>"
    # Links within the page would otherwise be relative to the notebook.
    page = page.replace("<head>", '<head><base href="about:srcdoc">', 1)
    return (
        f'<iframe title="inductoscope" sandbox="allow-scripts" style="{_STYLE}" '
        f'srcdoc="{escape(page)}"></iframe>'
    )


# --- Runs a cell in the notebook's own process, recorded, so that its variables stay --------------


def run_recorded_cell(
    shell: Any, cell: str, *, fresh: bool, output: Path | None, with_page: bool
) -> Any:
    """Run the cell recorded, show the findings, and return its last expression's value.

    An exception of the cell propagates after the findings are shown. For an interrupted cell only
    the recording's path is shown: a user who interrupts does not want to wait.
    """
    __tracebackhide__ = True
    name, first, last = _compiled(shell, cell)
    recording: LiveRecording | None = None
    try:
        with record(output=output, fresh=fresh) as recording:
            exec(first, shell.user_global_ns, shell.user_ns)
            value = eval(last, shell.user_global_ns, shell.user_ns) if last else None
    except KeyboardInterrupt:
        if recording is not None:
            show_inline(shell, f"interrupted; recorded until then: {recording.path}", None)
        raise
    except BaseException:
        if recording is not None:
            _show(shell, recording, name, with_page=with_page)
        raise
    _show(shell, recording, name, with_page=with_page)
    return value


def _compiled(shell: Any, cell: str) -> tuple[str, Any, Any]:
    """Compile the cell: its file name, statements, and last expression, if any."""
    # Lines have the numbers that they have in the cell, where the first one is the magic's.
    code = "\n" + shell.transform_cell(cell)
    name = shell.compile.cache(code, _number(shell), raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(code, filename=name))
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = shell.compile(ast.Expression(tree.body.pop().value), name, "eval")
    return name, shell.compile(tree, name, "exec"), last


def _show(shell: Any, recording: LiveRecording, name: str, *, with_page: bool) -> None:
    # The name of a nonexistent file would be meaningless to the reader.
    text, number = recording.text(), f"In[{_number(shell)}]"
    for unknown in (name, Path(name).name):
        text = text.replace(unknown, number)
    show_inline(shell, text, recording.path if with_page else None)


def _number(shell: Any) -> int:
    """Return the number of the running cell; IPython may have counted the next one already."""
    return len(shell.history_manager.input_hist_parsed) - 1


# --- Runs the doctor on a cell, as a script in another process ------------------------------------

# Magics that load or call the tool; the rest of such a cell is plain Python.
_OWN_MAGIC = re.compile(r"^(%%inductoscope\b.*|%(re)?load_ext +inductoscope *)$", re.MULTILINE)
# The doctor's grace period for ending its processes.
_GRACE = 5.0
_ALONE = (
    "The cell ran alone, in a new process: it does not know what other cells have defined. Put "
    "them before it: %%inductoscope doctor --cells 1-3"
)


@dataclass(frozen=True)
class Examination:
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
    if "NameError" in verdict.summary:
        text += f"\n{_ALONE}\n"
    show_inline(shell, text, Path(verdict.recording) if wanted.with_page else None)


def _script(shell: Any, cell: str, cells: str) -> str:
    """Build the script, whose line numbers match the cell's: line 1 is the magic's."""
    source = f"{_earlier(shell, cells)}\n{cell}" if cells else cell
    if "get_ipython()" in shell.transform_cell(source):
        raise UsageError(
            "The doctor runs the cell as a script, which cannot have IPython's % and ! commands. "
            "Remove them, or record the cell with %%inductoscope."
        )
    # Modules in the notebook's folder can be imported, as in the notebook.
    first = f"import sys; sys.path.insert(0, {os.getcwd()!r})"
    return f"{'#' if '__future__' in source else first}\n{source}"


def _earlier(shell: Any, cells: str) -> str:
    """Return the source of the cells with these numbers, without this tool's magics."""
    found = [code for *_, code in shell.history_manager.get_range_by_str(cells, raw=True)]
    if not found:
        raise UsageError(
            f"--cells {cells} names no cell that has run. Give the numbers of In [ ], such as 1-3."
        )
    return _OWN_MAGIC.sub("#", "\n".join(found))


def _run(words: list[str]) -> list[str]:
    """Run the command to its end and print its progress; an interrupt ends the command, too."""
    command = GuardedCommand(tool_command(words), folder=Path.cwd(), environment=tool_environment())
    said = []
    try:
        for line in command.lines():
            said.append(visible(line))
            print(said[-1], flush=True)
    finally:
        command.end(grace=_GRACE)
    return said


def _read(path: Path, *, without: str) -> Verdict | None:
    """Read the verdict, without the script's folder in paths, since it is gone."""
    with contextlib.suppress(OSError):
        found = verdict_of(members(json.loads(path.read_text("utf-8").replace(without, ""))))
        if found is None:
            raise ToolFailure("The doctor's answer cannot be read.")
        return found
    return None


# --- The cell magic: its arguments and its actions ------------------------------------------------

NAME = "inductoscope"
_RUN, _DOCTOR = "run", "doctor"


def register(shell: Any) -> None:
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
    """An argument parser that raises instead of exiting the process."""

    def __init__(self, name: str) -> None:
        super().__init__(name, add_help=False, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. %%{NAME}? shows the options.")
