"""Each word that the rooms share is spelled out in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from inductoscope.torch_facts import stages
from inductoscope.views.explain import find_stage
from support.source import FILES as SOURCE_FILES
from support.source import ROOT, nodes_of

TABLES = ("stages.py", "stage_lookup.py", "log_lines.py")
FILES = [path for path in SOURCE_FILES if path.name not in TABLES]

# --- stages ---------------------------------------------------------------------------------------

NAMES = {*stages.VERDICT_STAGES, stages.INDUCTOR, stages.BENCHMARK}

# Ordinary words count only in a statement that speaks of a stage or of a verdict.
ORDINARY = {stages.NO_STAGE, stages.USER, stages.BENCHMARK}

# Calls and keywords that take a word of another kind: the kind of an event or of a stall, a word
# for TORCH_LOGS, an attribute of torch's, a subsystem of its bisector.
OTHER_CALLS = {"emit", "log", "getattr", "_set", "subsystem_switch"}
OTHER_KEYWORDS = {"kind", "example"}

# Places where such a word means something else throughout, and what.
MEANT_OTHERWISE = {
    "inside/private_cache.py": {"inductor"},  # a folder
    "inside/compare/operators.py": {"inductor"},  # a namespace of operators
    "inside/doctor/compile_conditions.py": {"inductor"},  # a backend
    "views/verdict_text.py": {"dynamo", "inductor"},  # labels in torch's tracker
    "doctor/judgement.py": {"wrapper"},  # a function
    "inside/search/compiler_imports.py": {"scheduler"},  # a module
    "hangs/choices/stuck_choices.py": {"autotune"},  # a kind of event
    "hangs/watch/stall.py": {"lowering"},  # a kind of event
    "hangs/watch/kinds.py": NAMES,  # kinds of stalls
    "launch/environment.py": {"inductor"},  # a folder
    "launch/users_cache.py": {"dynamo"},  # a folder
    "recording/events.py": NAMES,  # kinds of events
    "model/fold.py": {"autotune", "lowering", "scheduler", "wrapper"},  # kinds of events
    "views/env/flags.py": {"inductor"},  # a word for TORCH_LOGS
    "views/export/raw.py": {"wrapper"},  # a file
    "views/page/": NAMES,  # names of panes and of chunks
    "views/report/alike.py": {"dynamo", "scheduler"},  # keys of the JSON of an operation
    "views/report/difference.py": {"none"},  # prose
    "views/report/operation.py": {"dynamo", "scheduler"},  # keys of its JSON
}


def spelled_out(path: Path) -> Iterator[str]:
    """Names of stages that a file spells out."""
    place = path.relative_to(ROOT).as_posix()
    allowed = {
        w for start, words in MEANT_OTHERWISE.items() if place.startswith(start) for w in words
    }
    named = [
        node
        for node in nodes_of(path)
        if isinstance(node, ast.Constant) and node.value in NAMES - allowed
    ]
    if not named:
        return
    parents = {child: node for node in nodes_of(path) for child in ast.iter_child_nodes(node)}
    for node in named:
        around: list[ast.AST] = [node]
        while not isinstance(around[-1], ast.stmt):
            around.append(parents[around[-1]])
        if not means_something_else(node, around):
            yield f"{place}:{node.lineno}: {node.value}"


def means_something_else(node: ast.Constant, around: list[ast.AST]) -> bool:
    parent = around[1]
    if isinstance(parent, ast.Call) and node in parent.args:
        called = parent.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in OTHER_CALLS:
            return True
    if any(isinstance(item, ast.keyword) and item.arg in OTHER_KEYWORDS for item in around):
        return True
    said = {item.id for item in ast.walk(around[-1]) if isinstance(item, ast.Name)}
    said |= {item.arg or "" for item in ast.walk(around[-1]) if isinstance(item, ast.keyword)}
    return node.value in ORDINARY and not any("stage" in word or word == "Verdict" for word in said)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_of_stages_are_spelled_out_in_the_vocabulary_alone(path: Path) -> None:
    assert list(spelled_out(path)) == []


def test_the_lists_of_stages_hold_the_same_stages() -> None:
    around_the_compiler = {stages.USER, stages.NO_STAGE}
    assert {*stages.COMPILER_ORDER} == {*stages.VERDICT_STAGES} - around_the_compiler
    assert {*stages.WORDS} == NAMES - {stages.NO_STAGE}
    assert len({*stages.VERDICT_STAGES}) == len(stages.VERDICT_STAGES)


@pytest.mark.parametrize("name", sorted({*NAMES, *stages.SHOWN} - {stages.BENCHMARK}))
def test_every_stage_is_explained(name: str) -> None:
    assert find_stage(name) is not None
