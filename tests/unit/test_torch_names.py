"""Every private name of torch and Triton that a source file uses is declared in that file."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from inductoscope.views.env.collection import declared_names, is_declaration, names_in
from support.source import FILES, ROOT, tree_of

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))

# Files that name a module and do not use it: they only look for it in texts, or show it.
NAMES_IN_PROSE = (
    "doctor/outside/",
    "inside/repro/failure_script.py",
    "torch_facts/triton_kernels.py",
    "kernels/plan.py",
    "views/env/flags.py",
    "views/env/flags.py",
    "views/explain/",
)

_MODULE = re.compile(r"torch(?:\.\w+)+")


def is_private(name: str) -> bool:
    """Anything of Triton, and of torch what has an underscore or is called experimental."""
    package, *parts = name.split(".")
    if parts and parts[-1].startswith("__"):
        parts = parts[:-1]
    if package == "triton":
        return bool(parts)
    hidden = any(part.startswith("_") for part in parts)
    return package == "torch" and (hidden or name.startswith("torch.fx.experimental"))


class Uses(ast.NodeVisitor):
    """Collects the private names that a file imports, and what it takes from them."""

    def __init__(self, tree: ast.Module) -> None:
        self.names: set[str] = set()
        self.words: set[str] = set()  # attributes and strings, by which parts are named
        self._stands_for: dict[str, str] = {}
        body = [statement for statement in tree.body if not is_declaration(statement)]
        for statement in body:
            for node in ast.walk(statement):
                if isinstance(node, (ast.Import, ast.ImportFrom)):
                    self._take(node)
        for statement in body:
            self.visit(statement)

    def _take(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                name, here = f"{node.module}.{alias.name}", alias.asname or alias.name
            else:
                here = alias.asname or alias.name.partition(".")[0]
                name = alias.name if alias.asname else here
                self._add(alias.name)
            if name.partition(".")[0] in ("torch", "triton"):
                self._stands_for[here] = name
                self._add(name)

    def _add(self, name: str) -> None:
        name = name.removesuffix(".__dict__")
        if is_private(name):
            self.names.add(name)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.words.add(node.attr)
        name = self._dotted(node)
        if name is None:
            self.generic_visit(node)
        else:
            self._add(name)
            self.words.update(name.split("."))

    def _dotted(self, node: ast.expr) -> str | None:
        if isinstance(node, ast.Name):
            return self._stands_for.get(node.id)
        if isinstance(node, ast.Attribute):
            owner = self._dotted(node.value)
            return owner and f"{owner}.{node.attr}"
        return None

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.words.add(node.value)
            if _MODULE.fullmatch(node.value):
                self._add(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # A docstring says nothing here.
            self.generic_visit(node)


@functools.cache
def uses_of(path: Path) -> Uses:
    """What a file uses."""
    return Uses(tree_of(path))


def hook_names(tree: ast.Module) -> Iterator[str]:
    """The names that a file's hooks declare: modules are strings or constants of the file."""
    constants = {
        target.id: statement.value.value
        for statement in tree.body
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "TorchName":
            words = [
                part.value
                if isinstance(part, ast.Constant)
                else constants.get(getattr(part, "id", ""))
                for part in node.args
            ]
            yield ".".join(map(str, words))


def covers(declared: str, used: str) -> bool:
    """A use may go on from what is declared, or be a step on the way there."""
    return f"{used}.".startswith(f"{declared}.") or declared.startswith(f"{used}.")


@every_file
def test_private_names_are_declared_where_they_are_used(path: Path) -> None:
    place = path.relative_to(ROOT).as_posix()
    if place.startswith(NAMES_IN_PROSE):
        return
    tree = tree_of(path)
    declared = [*map(str, names_in(tree)), *hook_names(tree)]
    used = uses_of(path).names
    missing = {name for name in used if not any(covers(item, name) for item in declared)}
    assert missing == set(), f"declare them in TORCH_NAMES at the top of {place}"


@every_file
def test_what_is_declared_is_used(path: Path) -> None:
    uses = uses_of(path)
    for name in names_in(tree_of(path)):
        found = [used for used in uses.names if covers(str(name), used)]
        assert found, f"{path.relative_to(ROOT)} declares {name} and does not use it"
        rest = str(name).removeprefix(max(found, key=len)).split(".")
        assert {part for part in rest if part} <= uses.words, f"{name} is not used"


def test_what_hooks_and_files_declare_is_collected() -> None:
    names = {str(name) for name in declared_names()}
    assert "torch._inductor.scheduler.Scheduler.can_fuse" in names
    assert "torch._inductor.ir.Buffer" in names
    assert all(is_private(name) for name in names)


@pytest.mark.parametrize(
    ("source", "missing"),
    [
        ("from torch._inductor import ir\nir.Buffer", {"torch._inductor.ir.Buffer"}),
        ("import torch\ntorch._dynamo.reset()", {"torch._dynamo.reset"}),
        (
            "import torch._inductor.graph as g\ng.A.b",
            {"torch._inductor.graph", "torch._inductor.graph.A.b"},
        ),
        ("import sys\nsys.modules['torch._inductor.config']", {"torch._inductor.config"}),
        ("import torch\ntorch.compile\ntorch.fx.Graph", set()),
        ("import triton\ntriton.knobs.nvidia", {"triton.knobs.nvidia"}),
    ],
)
def test_uses_are_found(source: str, missing: set[str]) -> None:
    assert missing <= Uses(ast.parse(source)).names
    assert bool(missing) == bool(Uses(ast.parse(source)).names)
