"""The statements of a generated file that its kernel needs; all others are left out.

A generated file is a program. Only what torch itself writes there is taken over: imports from
triton and from torch's run-time, constants, and functions under `@triton.jit`. So a script made of
them runs nothing else that somebody may have put into the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.kernels.literals import Dotted, Made, dotted_name, is_plain, read_value

_IMPORTED = ("triton", "torch._inductor.runtime")
_DECORATORS = ("triton.jit", "triton.constexpr_function", "triton.experimental.gluon.jit")
# Starts torch's driver, which needs a GPU; compiling a kernel does not.
_NOT_NEEDED = ("triton_helpers.set_driver_to_gpu", "triton_helpers.set_driver_to_cpu")


@dataclass(frozen=True)
class KernelDefinition:
    """One statement that is taken over: 'import', 'constant', 'function' or 'kernel'."""

    kind: str
    name: str
    source: str


@dataclass(frozen=True)
class Heuristic:
    """The decorator that says how Inductor chooses a kernel's configuration."""

    name: str
    keywords: Mapping[str, Any]


@dataclass(frozen=True)
class Body:
    """What the kernel function itself says."""

    arguments: tuple[str, ...] = ()
    constexpr_arguments: tuple[str, ...] = ()
    constexpr_values: Mapping[str, Any] = field(default_factory=dict)
    constexpr_lines: Mapping[str, int] = field(default_factory=dict)  # 0 is the line of `def`
    names: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Definitions:
    """Everything taken over from one file, in its order."""

    found: tuple[KernelDefinition, ...]
    kernel: KernelDefinition | None
    heuristic: Heuristic | None
    body: Body
    problems: tuple[str, ...]


def read_definitions(tree: ast.Module, text: str) -> Definitions:
    """Pick out of a parsed file what the kernel needs."""
    lines = text.split("\n")
    found: list[KernelDefinition] = []
    problems: list[str] = []
    kernel: ast.FunctionDef | None = None
    heuristic: Heuristic | None = None
    for node in tree.body:
        try:
            definition, own = _definition(node, lines)
        except _Refused as refusal:
            problems.append(f"line {node.lineno} is skipped: {refusal}")
            continue
        if own is not None and isinstance(node, ast.FunctionDef):
            if kernel is not None:
                problems.append(f"line {node.lineno}: a second kernel, {node.name}, is skipped")
                continue
            kernel, heuristic = node, own
        if definition is not None:
            found.append(definition)
    chosen = next((d for d in found if d.kind == "kernel"), None)
    body = Body() if kernel is None else _body(kernel)
    return Definitions(tuple(found), chosen, heuristic, body, tuple(problems))


class _Refused(Exception):
    """A statement that is not taken over; the text says why."""


def _definition(
    node: ast.stmt, lines: list[str]
) -> tuple[KernelDefinition | None, Heuristic | None]:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return _import(node), None
    if isinstance(node, (ast.Assign, ast.AnnAssign)):
        return _assignment(node), None
    if isinstance(node, ast.FunctionDef):
        return _function(node, lines)
    if isinstance(node, ast.Expr) and _is_harmless(node.value):
        return None, None
    raise _Refused(f"{type(node).__name__} is not part of a kernel")


def _is_harmless(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return True
    return isinstance(node, ast.Call) and dotted_name(node.func) in _NOT_NEEDED


def _import(node: ast.Import | ast.ImportFrom) -> KernelDefinition:
    modules = (
        [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
    )
    names = ", ".join(alias.asname or alias.name for alias in node.names)
    for module in modules:
        if not module or not any(module == m or module.startswith(f"{m}.") for m in _IMPORTED):
            raise _Refused(f"import of {module}")
    return KernelDefinition("import", names, ast.unparse(node))


def _assignment(node: ast.Assign | ast.AnnAssign) -> KernelDefinition:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    target = targets[0]
    if len(targets) != 1 or not isinstance(target, ast.Name) or node.value is None:
        raise _Refused("an assignment to more than one name")
    value = read_value(node.value)
    if not is_plain(value) or (isinstance(value, Made) and value.name not in _CONSTEXPR):
        raise _Refused(f"the value of {target.id} is not a constant")
    return KernelDefinition("constant", target.id, f"{target.id} = {ast.unparse(node.value)}")


_CONSTEXPR = ("tl.constexpr", "triton.language.constexpr", "constexpr")


def _function(node: ast.FunctionDef, lines: list[str]) -> tuple[KernelDefinition, Heuristic | None]:
    heuristic = None
    decorators = []
    for decorator in node.decorator_list:
        found = _heuristic(decorator)
        heuristic = heuristic or found
        if found is None:
            decorators.append(_decorator(decorator))
    if not decorators:
        raise _Refused(f"{node.name} is not a Triton function")
    _check_header(node)
    kind = "function" if heuristic is None else "kernel"
    own_lines = lines[node.lineno - 1 : node.end_lineno]
    return KernelDefinition(kind, node.name, "\n".join([*decorators, *own_lines])), heuristic


def _heuristic(node: ast.expr) -> Heuristic | None:
    if not isinstance(node, ast.Call):
        return None
    *modules, name = dotted_name(node.func).split(".")
    if not modules or modules[-1] != "triton_heuristics":
        return None
    keywords = {word.arg: read_value(word.value) for word in node.keywords if word.arg}
    return Heuristic(name, keywords)


def _decorator(node: ast.expr) -> str:
    called = node.func if isinstance(node, ast.Call) else node
    name = dotted_name(called)
    if name not in (*_DECORATORS, "jit", "gluon.jit"):
        raise _Refused(f"the decorator {name or type(node).__name__} is not one of Triton's")
    if isinstance(node, ast.Call) and not is_plain(_keywords_only(node)):
        raise _Refused(f"{name} is called with arguments that are not constants")
    return f"@{ast.unparse(node)}"


def _keywords_only(node: ast.Call) -> Any:
    values = [read_value(word.value) for word in node.keywords]
    return values + [read_value(argument) for argument in node.args]


def _check_header(node: ast.FunctionDef) -> None:
    """Defaults and annotations are evaluated when a function is defined, so they must be plain."""
    arguments = node.args
    everyone = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    parts = [argument.annotation for argument in everyone]
    parts += [*arguments.defaults, *arguments.kw_defaults, node.returns]
    for part in parts:
        value = None if part is None else read_value(part)
        if isinstance(value, Made) or not is_plain(value):
            raise _Refused(f"a default or annotation of {node.name} is not a constant")


def _body(node: ast.FunctionDef) -> Body:
    values, lines = {}, {}
    for name, value, line in _constexpr_assignments(node):
        values[name] = value
        lines[name] = line - node.lineno
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return Body(
        arguments=tuple(argument.arg for argument in arguments),
        constexpr_arguments=tuple(a.arg for a in arguments if _is_constexpr(a.annotation)),
        constexpr_values=values,
        constexpr_lines=lines,
        names=frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name)),
    )


def _constexpr_assignments(node: ast.FunctionDef) -> Iterator[tuple[str, Any, int]]:
    """`BLOCK_M : tl.constexpr = 64`, in the outermost lines of the body, each on one line."""
    for statement in node.body:
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and _is_constexpr(statement.annotation)
            and statement.value is not None
            and statement.lineno == statement.end_lineno
        ):
            value = read_value(statement.value)
            if isinstance(value, (bool, int, float, str, Dotted)):
                yield statement.target.id, value, statement.lineno


def _is_constexpr(annotation: ast.expr | None) -> bool:
    if isinstance(annotation, ast.Constant):
        return isinstance(annotation.value, str) and annotation.value in _CONSTEXPR
    return annotation is not None and dotted_name(annotation) in _CONSTEXPR
