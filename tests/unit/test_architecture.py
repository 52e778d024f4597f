"""The shape of the code: which part may know which, and that every table is complete."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import inductoscope
from inductoscope import api
from inductoscope.analysis.rules import RULES, Rule
from inductoscope.cli import COMMANDS
from inductoscope.inside.hooks import HOOKS
from inductoscope.model.fold import OF_COMPILE, OF_GRAPH, OF_PROCESS
from inductoscope.recording import events as E
from inductoscope.recording.events import KINDS, Event
from inductoscope.torch_facts.stages import SHOWN
from inductoscope.torch_facts.torch_names import Hook
from inductoscope.views.report import stage_views
from inductoscope.views.report.stage_views import STAGE_VIEWS
from support.source import FILES, ROOT, nodes_of, tree_of

TABLE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"
# A room imports only from itself and from rooms above it in the table of docs/architecture.md.
ORDER = (
    *re.findall(r"^\| `([a-z_/]+)` \|", TABLE.read_text("utf-8"), re.MULTILINE),
    "__init__",
    "__main__",
)

# Runs in the user's process, where torch is already loaded, or in a child that is to load it.
INSIDE = "inside/"
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))


def place(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def room(path: Path) -> str:
    """The innermost room of the table that a file is in."""
    return room_of(place(path).removesuffix(".py"))


def room_of(name: str) -> str:
    """The room of a module, by its path below the package; empty if it has none."""
    rooms = [entry for entry in ORDER if f"{name}/".startswith(f"{entry}/")]
    return max(rooms, key=len, default="")


def imported(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{place(path)} imports relative to itself"
            assert node.module is not None
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


# --- who knows whom -------------------------------------------------------------------------------


@every_file
def test_imports_point_one_way(path: Path) -> None:
    modules = list(imported(path))
    assert room(path) or not modules, f"{place(path)} is in no room of {TABLE.name}"
    for module in modules:
        package, _, rest = module.partition(".")
        if package == "inductoscope":
            other = room_of(rest.replace(".", "/")) or "__init__"
            assert ORDER.index(other) <= ORDER.index(room(path)), f"{place(path)}: {module}"


def test_every_room_of_the_table_exists() -> None:
    for name in ORDER:
        assert (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file(), name


def test_every_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`([a-z_/]+\.(?:py|tsx?|json|yml))`", TABLE.read_text("utf-8")))
    roots = (ROOT, TABLE.parents[1])
    assert named
    assert {one for one in named if not any((r / one).exists() for r in roots)} == set()


@every_file
def test_only_what_runs_beside_torch_imports_torch(path: Path) -> None:
    torch = [name for name in imported(path) if name.partition(".")[0] in ("torch", "triton")]
    assert torch == [] or place(path).startswith(INSIDE)


def test_what_records_needs_only_the_standard_library() -> None:
    modules = ["inside.start", "inside.hooks", "inside.doctor.checking_agent", "recording.writer"]
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(ROOT.parent)!r})\n"
        f"for name in {modules!r}: importlib.import_module('inductoscope.' + name)\n"
        "roots = {name.partition('.')[0] for name in sys.modules}\n"
        "print(*sorted(roots - sys.stdlib_module_names - {'__main__'}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["inductoscope"]


# --- how the files look ---------------------------------------------------------------------------


@every_file
def test_a_file_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(tree_of(path))


def test_no_docstring_begins_with_what() -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    places = [
        f"{place(path)}:{getattr(node, 'lineno', 1)}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, documented)
        and re.match(r"What\b", ast.get_docstring(node) or "") is not None
    ]
    assert places == [], "name the thing, or begin with a verb"


HEADINGS = ("What it finds:", "Why it matters:", "Example:", "What to do:")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_rule_is_documented_under_the_same_headings(rule: Rule) -> None:
    paragraphs = (inspect.getdoc(rule) or "").split("\n\n")
    found = [next((h for h in HEADINGS if text.startswith(h)), "") for text in paragraphs[1:]]
    assert tuple(found) == HEADINGS


TESTS = Path(__file__).resolve().parents[1]


def sentences_asserted(function: ast.FunctionDef) -> set[str]:
    """Every text of four words or more in the assertions of a test."""
    return {
        node.value
        for statement in ast.walk(function)
        if isinstance(statement, ast.Assert)
        for node in ast.walk(statement.test)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and len(node.value.split()) >= 4
    }


def test_a_sentence_is_asserted_in_one_test() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for sentence in sentences_asserted(node):
                    places.setdefault(sentence, []).append(f"{path.name}::{node.name}")
    repeated = {sentence: where for sentence, where in places.items() if len(where) > 1}
    assert repeated == {}, (
        "keep each in the test whose subject it is; in the others assert the fact as data: "
        "an exit code, a field of the JSON, an attribute"
    )


def test_a_class_has_a_name_of_its_own() -> None:
    """Two classes of one name are told apart by nobody who reads a message or searches."""
    places: dict[str, list[str]] = {}
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(place(path))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


# --- tables ---------------------------------------------------------------------------------------


def test_every_rule_is_in_the_table_of_rules_once() -> None:
    """A rule is a public function with a recording as its only argument."""
    modules = {inspect.getmodule(rule) for rule in RULES}
    public = [
        function
        for module in modules
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and "What it finds:" in (function.__doc__ or "")
    ]
    assert len(set(RULES)) == len(RULES)
    assert set(public) == set(RULES)


def test_every_command_file_is_in_the_table_of_commands_once() -> None:
    files = {path.stem for path in (ROOT / "cli" / "commands").glob("*.py")} - {"__init__"}
    assert sorted(COMMANDS) == sorted(files)
    for name in COMMANDS:
        assert importlib.import_module(f"inductoscope.cli.commands.{name}").command.name == name


def test_every_function_that_builds_a_stage_is_in_the_table_of_views_once() -> None:
    builders = [
        function
        for name, function in inspect.getmembers(stage_views, inspect.isfunction)
        if function.__module__ == stage_views.__name__
        and function.__annotations__.get("return") == "Iterator[Section]"
        and not name.startswith("_")
        and name != "kernel_form_sections"
    ]
    assert tuple(STAGE_VIEWS) == SHOWN
    views = map(inspect.unwrap, STAGE_VIEWS.values())
    assert sorted(map(repr, builders)) == sorted(map(repr, views))


def test_every_hook_is_in_the_table_of_hooks_once() -> None:
    defined: list[Hook] = []
    for path in sorted((ROOT / "inside" / "hooks").glob("*.py")):
        module = importlib.import_module(f"inductoscope.inside.hooks.{path.stem}")
        assert module.HOOKS, f"{place(path)} defines no hook"
        defined += module.HOOKS if path.stem != "__init__" else ()
    assert sorted(map(id, defined)) == sorted(map(id, HOOKS))
    # A view is switched off by what it records, so no two may record the same.
    assert len({hook.records for hook in HOOKS}) == len(HOOKS)
    assert all(hook.names for hook in HOOKS)


def names_in(path: Path, *, called: bool) -> set[str]:
    """Names that a file uses: those that it calls, as a constructor is, or all others."""
    calls = {id(node.func) for node in nodes_of(path) if isinstance(node, ast.Call)}
    return {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in nodes_of(path)
        if isinstance(node, (ast.Name, ast.Attribute)) and (id(node) in calls) is called
    }


def test_every_event_is_written_somewhere() -> None:
    rooms = ("recording", "inside", "launch", "doctor", "targets")
    writers = [path for path in FILES if room(path).partition("/")[0] in rooms]
    made = set().union(*(names_in(path, called=True) for path in writers))
    assert {event.__name__ for event in KINDS.values()} - made == set()


_CALLS = E.GraphCall, E.GraphReturned, E.EagerReturned, E.CompiledReturned
_SHADOWS = E.CallShadowed, E.ShadowsEnded, E.BiasFound
_STUCK = E.BenchmarkStart, E.BenchmarkEnd, E.TorchLogged
_COSTS = E.PassesTimed, E.CacheKeyMade

# What the model does not hold, and the module that reads it.
READ_ELSEWHERE: dict[type[Event], str] = {
    **dict.fromkeys(
        (E.ProcessStart, E.StageStart, E.NativeStart, *_CALLS), "model/process_position.py"
    ),
    **dict.fromkeys(_STUCK, "hangs/choices/stuck_choices.py"),
    E.TracingContinues: "hangs/watch/stall.py",
    **dict.fromkeys(_COSTS, "profiling/compile_times.py"),
    **dict.fromkeys(_SHADOWS, "doctor/sentinel_run.py"),
    **dict.fromkeys((E.ClaimMade, E.Said), "doctor/runs.py"),
    E.GrowthMeasured: "doctor/runs.py",
    E.CandidateJudged: "inside/search/oracle.py",
    # Only ever sent by a fork to the process that started it.
    E.KernelLaunched: "inside/search/forks.py",
}


def test_every_event_is_part_of_the_model_or_read_where_it_says() -> None:
    known = [*OF_PROCESS, *OF_COMPILE, *OF_GRAPH, *READ_ELSEWHERE]
    assert len(known) == len(set(known))
    assert set(known) == set(KINDS.values())
    for event, reader in READ_ELSEWHERE.items():
        assert event.__name__ in names_in(ROOT / reader, called=False)


# --- what users import ----------------------------------------------------------------------------


def test_everything_public_is_re_exported_from_the_package() -> None:
    public = {
        name
        for name, value in vars(api).items()
        if getattr(value, "__module__", "") == api.__name__ and not name.startswith("_")
    }
    assert public | {"__version__"} == set(inductoscope.__all__)
    for name in inductoscope.__all__:
        assert getattr(inductoscope, name) is not None


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'recrod'"):
        inductoscope.recrod  # noqa: B018
