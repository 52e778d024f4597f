"""Runs a cell in the notebook's own process, recorded, so that its variables stay."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from inductoscope.api import LiveRecording, record
from inductoscope.notebook.inline import show_inline


def run_recorded_cell(
    shell: Any, cell: str, *, fresh: bool, output: Path | None, with_page: bool
) -> Any:
    """Run it, show what was found, and return the value of its last expression.

    What it raises goes on after the findings are shown. An interrupted cell only says where its
    recording is: whoever interrupts does not want to wait.
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
    """The name that the cell's lines are known by; its statements; its last expression, if any."""
    # Lines have the numbers that they have in the cell, where the first one is the magic's.
    code = "\n" + shell.transform_cell(cell)
    name = shell.compile.cache(code, _number(shell), raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(code, filename=name))
    last = None
    if tree.body and isinstance(tree.body[-1], ast.Expr):
        last = shell.compile(ast.Expression(tree.body.pop().value), name, "eval")
    return name, shell.compile(tree, name, "exec"), last


def _show(shell: Any, recording: LiveRecording, name: str, *, with_page: bool) -> None:
    # The name of a file that is not there says nothing to the reader.
    text, number = recording.text(), f"In[{_number(shell)}]"
    for unknown in (name, Path(name).name):
        text = text.replace(unknown, number)
    show_inline(shell, text, recording.path if with_page else None)


def _number(shell: Any) -> int:
    """Of the cell that runs; IPython may have begun to count the next one."""
    return len(shell.history_manager.input_hist_parsed) - 1
