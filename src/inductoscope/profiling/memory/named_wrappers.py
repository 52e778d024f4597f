"""A Python wrapper rewritten so that it says where each of its variables lies in memory.

    buf0 = empty_strided_cpu((1024, 256), (256, 1), torch.float32)
    inductoscope_named({'buf0': buf0})

What it allocates, in which order, and when it lets go of it stays as it was.
"""

from __future__ import annotations

import ast
import types

from inductoscope.kernels.wrapper_code import is_run_by_wrapper

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
        node.body = [*_parsed(f"{ENTERED}()"), *body] if is_entry else body
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
            found += [kept, *_parsed(f"{LEFT}({_RESULT})")]
            statement.value = ast.Name(_RESULT, ast.Load())
        found.append(statement)
        names = _assigned(statement)
        if names:
            found += _parsed(f"{NAMED}({{{', '.join(f'{n!r}: {n}' for n in names)}}})")
    return found


def _assigned(statement: ast.stmt) -> list[str]:
    """Variables that a statement gives a value."""
    if not isinstance(statement, ast.Assign):
        return []
    targets = [
        part
        for target in statement.targets
        for part in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
    ]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body
