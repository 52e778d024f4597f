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

from inductoscope.kernels.wrapper_code import is_run_by_wrapper, kernel_call

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
