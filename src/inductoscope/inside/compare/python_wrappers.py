"""The Python wrapper of a compiled graph, rewritten so that it reports what it does.

It announces every kernel call and hands over every buffer that the kernel got.
"""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from inductoscope.inside.compare.cpp_reports import Reports
from inductoscope.torch_facts.python_wrappers import is_run_by_wrapper, kernel_call

# Names that the rewritten wrapper calls; no generated wrapper uses them itself.
_BEGIN, _BEFORE, _AFTER = "inductoscope_begin", "inductoscope_before", "inductoscope_after"


@dataclass(frozen=True)
class ReportingCode:
    """A wrapper that reports what it does."""

    code: types.CodeType
    # How often it reports each buffer, and the buffers that each kernel gets or makes.
    mentions: dict[str, int]
    buffers: dict[str, list[str]]


def with_reports(path: str, written: Sequence[str] = ()) -> ReportingCode:
    """A wrapper, changed to report. Inputs that are `written` are reported like buffers."""
    with open(path, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    announce = _Announce(written)
    changed = ast.fix_missing_locations(announce.visit(tree))
    return ReportingCode(compile(changed, path, "exec"), announce.mentions, announce.buffers)


def names_for(reports: Reports) -> dict[str, Any]:
    """The functions that a rewritten wrapper calls."""
    return {_BEGIN: reports.begin, _BEFORE: reports.before, _AFTER: reports.after}


def replace_functions(module: Any, path: str, code: types.CodeType, names: dict[str, Any]) -> None:
    """Execute the rewritten wrapper and let the module call it."""
    fresh = types.ModuleType(module.__name__)
    fresh.__dict__.update(names, __file__=path)
    exec(code, fresh.__dict__)
    for name in ("call", "runner", "Runner", "recursively_apply_fns"):
        if name in fresh.__dict__:
            setattr(module, name, fresh.__dict__[name])


@contextlib.contextmanager
def exchanged_entry(module: Any, path: str, text: str) -> Iterator[None]:
    """While this is active, a loaded module calls the C++ code in `text`, not its own.

    The C++ code is compiled for that.
    """
    fresh = types.ModuleType(module.__name__)
    fresh.__dict__["__file__"] = path
    exec(compile(text, path, "exec"), fresh.__dict__)
    cells = module.call.__closure__ or ()
    for cell in cells:
        if cell.cell_contents is module.inductor_entry:
            cell.cell_contents = fresh.inductor_entry
    try:
        yield
    finally:
        for cell in cells:
            if cell.cell_contents is fresh.inductor_entry:
                cell.cell_contents = module.inductor_entry


class _Announce(ast.NodeTransformer):
    """Adds the reports to every function named `call` and to partitions."""

    def __init__(self, written: Sequence[str]) -> None:
        # How often each buffer is reported.
        self.mentions: dict[str, int] = {}
        self.buffers: dict[str, list[str]] = {}
        self._written = written
        self._last_kernel = ""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if is_run_by_wrapper(node):
            node.body = self._announced(node.body, is_entry=node.name == "call")
        return node

    def _announced(self, body: list[ast.stmt], *, is_entry: bool) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        if is_entry:
            found += ast.parse(f"{_BEGIN}(args)").body
        for statement in body:
            if isinstance(statement, (ast.With, ast.If, ast.For)):
                statement.body = self._announced(statement.body, is_entry=False)
                found.append(statement)
                continue
            kernel, buffers = _kernel_call(statement, self._written)
            if kernel:
                self._last_kernel = kernel
                self.buffers.setdefault(kernel, []).extend(buffers)
                found += ast.parse(f"{_BEFORE}({kernel!r})").body
            found.append(statement)
            if buffers:
                given = ", ".join(f"{name!r}: {name}" for name in buffers)
                found += ast.parse(f"{_AFTER}({self._last_kernel!r}, {{{given}}})").body
                for name in buffers:
                    self.mentions[name] = self.mentions.get(name, 0) + 1
        return found


def _kernel_call(statement: ast.stmt, written: Sequence[str]) -> tuple[str, list[str]]:
    """The kernel that a statement calls, and the buffers that it gets or returns."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript):
        return "", _buffers(statement.targets, ())  # One of several results.
    found = kernel_call(statement)
    if found is None:
        return "", []
    name, call = found
    parts: list[ast.AST] = [*call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(statement, ast.Assign):
        parts += statement.targets
    return name, _buffers(parts, written)


def _buffers(parts: Any, written: Sequence[str]) -> list[str]:
    names = {
        item.id
        for part in parts
        for item in ast.walk(part)
        if isinstance(item, ast.Name) and (item.id.startswith("buf") or item.id in written)
    }
    return sorted(names)
