"""A Python wrapper rewritten so that it takes the time around every kernel that it calls.

    inductoscope_from = inductoscope_clock()
    cpp_fused_0(arg0_1, buf0)
    inductoscope_times += (1, inductoscope_from, inductoscope_clock())

Nothing else is done between kernels: what was noted is handed over when the wrapper returns.
"""

from __future__ import annotations

import ast
import re
import types
from dataclasses import dataclass

from inductoscope.torch_facts.wrapper_code import is_run_by_wrapper, kernel_call

# Names that the rewritten wrapper uses; no generated wrapper has them.
CLOCK, ENDED, BEFORE, AFTER = (
    "inductoscope_clock",
    "inductoscope_ended",
    "inductoscope_before",
    "inductoscope_after",
)
_TIMES, _FROM, _BEGUN = "inductoscope_times", "inductoscope_from", "inductoscope_begun"

_SIZE = re.compile(r"[su]\d+")
# Parts of a graph, which take the time of their kernels themselves.
_PARTS = ("self.partitions", "partition")
_ON_GPU = re.compile(r"\bget_raw_stream\b|\btorch\.cuda\._DeviceGuard\b")


@dataclass(frozen=True)
class Site:
    """A line of a wrapper that calls a kernel."""

    number: int
    line: int
    kernel: str


@dataclass(frozen=True)
class TimedWrapper:
    """The rewritten code, and where it calls kernels."""

    code: types.CodeType
    sites: tuple[Site, ...]
    on_gpu: bool


def timed_wrapper(path: str, text: str) -> TimedWrapper | None:
    """The wrapper with the time taken around kernels; None if it calls none from Python."""
    rewriting = _Rewriting(on_gpu=_ON_GPU.search(text) is not None)
    changed = ast.fix_missing_locations(rewriting.visit(ast.parse(text)))
    if not rewriting.sites:
        return None
    code = compile(changed, path, "exec")
    return TimedWrapper(code, tuple(rewriting.sites), rewriting.on_gpu)


class _Rewriting(ast.NodeTransformer):
    """Adds the clock to every function of the wrapper that calls kernels."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.sites: list[Site] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not is_run_by_wrapper(node):
            return node
        known = len(self.sites)
        body = self._timed(node.body)
        if node.name == "call" or len(self.sites) > known:
            sizes = sorted({n for n in _assigned(node) if _SIZE.fullmatch(n)})
            handed = ", ".join(f"{name!r}: {name}" for name in sizes)
            is_entry = node.name == "call"
            ended = f"{ENDED}({_TIMES}, {_BEGUN}, {{{handed}}}, {is_entry})"
            node.body = [
                *_parsed(f"{_TIMES} = []\n{_BEGUN} = {CLOCK}()"),
                *_before_return(body, ended),
            ]
        return node

    def _timed(self, body: list[ast.stmt]) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, (ast.With, ast.If, ast.For)):
                statement.body = self._timed(statement.body)
                if isinstance(statement, ast.If):
                    statement.orelse = self._timed(statement.orelse)
                found.append(statement)
                continue
            call = kernel_call(statement)
            if call is None or call[0].startswith(_PARTS):
                found.append(statement)
                continue
            site = Site(len(self.sites), statement.lineno, call[0])
            self.sites.append(site)
            found += self._around(site, statement)
        return found

    def _around(self, site: Site, statement: ast.stmt) -> list[ast.stmt]:
        before = f"{BEFORE}({site.number})\n" if self.on_gpu else ""
        after = f"{AFTER}({site.number})\n" if self.on_gpu else ""
        noted = f"{_TIMES} += ({site.number}, {_FROM}, {CLOCK}())"
        return [
            *_parsed(f"{before}{_FROM} = {CLOCK}()"),
            statement,
            *_parsed(noted + (f"\n{after}" if after else "")),
        ]


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _assigned(function: ast.FunctionDef) -> set[str]:
    """Names that a function assigns on its own level, where they always have a value."""
    targets = [t for s in function.body if isinstance(s, ast.Assign) for t in s.targets]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _before_return(body: list[ast.stmt], text: str) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, (ast.With, ast.If, ast.For)):
            statement.body = _before_return(statement.body, text)
        if isinstance(statement, ast.Return):
            found += _parsed(text)
        found.append(statement)
    return found


# --- A Python wrapper rewritten so that it says where each of its variables lies in memory --------
#
#     buf0 = empty_strided_cpu((1024, 256), (256, 1), torch.float32)
#     inductoscope_named({'buf0': buf0})
#
# What it allocates, in which order, and when it lets go of it stays as it was.

# Names that the rewritten wrapper uses; no generated wrapper has them.
ENTERED, NAMED, LEFT = "inductoscope_entered", "inductoscope_named", "inductoscope_left"
_RESULT = "inductoscope_result"


def named_wrapper(path: str, text: str) -> types.CodeType | None:
    """The wrapper that names its memory; None if it runs nothing from Python."""
    naming = _Naming()
    changed = ast.fix_missing_locations(naming.visit(ast.parse(text)))
    return compile(changed, path, "exec") if naming.has_entry else None


class _Naming(ast.NodeTransformer):
    """Adds a note after every assignment in the functions that run kernels."""

    def __init__(self) -> None:
        self.has_entry = False

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if not is_run_by_wrapper(node):
            return node
        is_entry = node.name == "call"
        self.has_entry = self.has_entry or is_entry
        body = _noted(node.body, is_entry=is_entry)
        node.body = [*_parsed_statements(f"{ENTERED}()"), *body] if is_entry else body
        return node


def _noted(body: list[ast.stmt], *, is_entry: bool) -> list[ast.stmt]:
    found: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, (ast.With, ast.If, ast.For)):
            statement.body = _noted(statement.body, is_entry=is_entry)
            if isinstance(statement, ast.If):
                statement.orelse = _noted(statement.orelse, is_entry=is_entry)
        if is_entry and isinstance(statement, ast.Return) and statement.value is not None:
            kept = ast.Assign([ast.Name(_RESULT, ast.Store())], statement.value)
            found += [kept, *_parsed_statements(f"{LEFT}({_RESULT})")]
            statement.value = ast.Name(_RESULT, ast.Load())
        found.append(statement)
        names = _assigned_names(statement)
        if names:
            found += _parsed_statements(f"{NAMED}({{{', '.join(f'{n!r}: {n}' for n in names)}}})")
    return found


def _assigned_names(statement: ast.stmt) -> list[str]:
    """Variables that a statement gives a value."""
    if not isinstance(statement, ast.Assign):
        return []
    targets = [
        part
        for target in statement.targets
        for part in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
    ]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _parsed_statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body
