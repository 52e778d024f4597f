"""Every private name of torch and Triton that the code uses is in one table, and no other is."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from inductoscope.inside.hooks import HOOKS
from inductoscope.torch_facts import private_names
from inductoscope.torch_facts.private_names import declared_names
from inductoscope.torch_facts.torch_names import TorchName
from support.source import FILES, ROOT, tree_of

every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))

# Files that name a module and do not use it: they only look for it in texts, or show it.
NAMES_IN_PROSE = (
    "doctor/hypotheses/",
    "inside/repro/failure_script.py",
    "torch_facts/triton_kernels.py",
    "kernels/plan.py",
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
        for node in ast.walk(tree):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._take(node)
        for statement in tree.body:
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
            # Also the words of a statement that is kept as text.
            self.words.update(re.findall(r"\w+", node.value))
            if _MODULE.fullmatch(node.value):
                self._add(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # A docstring says nothing here.
            self.generic_visit(node)


@functools.cache
def uses_of(path: Path) -> Uses:
    """Torch names that a file uses."""
    return Uses(tree_of(path))


def names_in(value: object) -> list[TorchName]:
    """Every name in a constant of the table: one, several, or several by name."""
    several = value.values() if isinstance(value, dict) else value
    every = several if isinstance(several, Iterable) else (several,)
    return [name for name in every if isinstance(name, TorchName)]


HOOKED = [str(name) for value in vars(private_names).values() for name in names_in(value)]
DECLARED = [
    *HOOKED,
    *(str(name) for hook in HOOKS for name in hook.names),
    *map(str, declared_names()),
]


def covers(declared: str, used: str) -> bool:
    """A use may go on from what is declared, or be a step on the way there."""
    return f"{used}.".startswith(f"{declared}.") or declared.startswith(f"{used}.")


@every_file
def test_private_names_are_in_the_table(path: Path) -> None:
    if path.relative_to(ROOT).as_posix().startswith(NAMES_IN_PROSE):
        return
    used = uses_of(path).names
    missing = {name for name in used if not any(covers(item, name) for item in DECLARED)}
    assert missing == set(), "add them to torch_facts/private_names.py"


@every_file
def test_no_other_file_makes_names_of_its_own(path: Path) -> None:
    calls = (node.func for node in ast.walk(tree_of(path)) if isinstance(node, ast.Call))
    made = any(isinstance(func, ast.Name) and func.id == "TorchName" for func in calls)
    # One hook reads the same function of each module of settings.
    table = ("torch_facts/private_names.py", "inside/hooks/dynamo.py")
    assert not made or path.relative_to(ROOT).as_posix() in table


def test_every_name_of_the_table_is_used() -> None:
    others = [uses_of(path) for path in FILES if path.name != "private_names.py"]
    used = set().union(*(uses.names for uses in others))
    words = set().union(*(uses.words for uses in others))
    for name in map(str, declared_names()):
        found = [each for each in used if covers(name, each)]
        assert found, f"{name} is not used"
        rest = name.removeprefix(max(found, key=len)).split(".")
        assert {part for part in rest if part} <= words, f"{name} is not used"


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
