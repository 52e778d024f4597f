"""`inductoscope explain`: every name that the tool uses, and only flags that torch really has."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path
from typing import get_args

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope import verdicts
from inductoscope.analysis.rules import RULES
from inductoscope.torch_facts.stages import SHOWN, VERDICT_STAGES
from inductoscope.views.explain import (
    STAGES,
    StageEntry,
    Topic,
    find_stage,
    one_line,
    stage_summary,
    stages_by_symptom,
    topics,
)
from support.examples import inductoscope

every_stage = pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*VERDICT_STAGES, *SHOWN])
def test_every_stage_that_the_tool_names_is_explained(name: str) -> None:
    assert find_stage(name) is not None
    assert 20 < len(stage_summary(name)) < 110
    assert one_line(name).endswith(f"More: 'inductoscope explain {name}'.")


def test_no_name_means_two_stages() -> None:
    names = [name for stage in STAGES for name in (stage.name, *stage.aliases)]
    assert len(set(names)) == len(names)


def topics_of(kind: str) -> dict[str, Topic]:
    return {topic.name: topic for topic in topics(kind)}


def test_every_rule_verdict_and_stall_is_explained() -> None:
    findings = topics_of("finding")
    assert set(findings) == {rule.__name__ for rule in RULES}
    for topic in findings.values():
        assert list(topic.parts) == ["What it finds", "Why it matters", "Example", "What to do"]
    constants = [str(value) for name, value in vars(verdicts).items() if name.isupper()]
    kinds = {value for value in constants if re.fullmatch(r"[a-z-]+", value)}
    assert "wrong-result" in kinds
    assert kinds == set(topics_of("verdict"))
    assert set(get_args(verdicts.Confidence)) == set(topics_of("confidence"))
    assert {"ptxas", "pool-deadlock", "worker-stopped", "unknown"} <= set(topics_of("stall"))


@every_stage
def test_a_stage_says_what_to_do_at_it(stage: StageEntry) -> None:
    assert stage.commands
    assert all(c.startswith("inductoscope ") for c, _ in stage.commands)
    assert stage.name == "none" or (stage.symptoms and stage.look_here_when and stage.flags)
    for _, other in stage.elsewhere:
        assert find_stage(other) is not None
        assert other != stage.name


# --- length ---------------------------------------------------------------------------------------


@every_stage
def test_a_stage_is_explained_in_a_few_lines(stage: StageEntry) -> None:
    assert len(stage.does) < 400
    entries = (*stage.look_here_when, *stage.symptoms, *(text for text, _ in stage.elsewhere))
    pairs = (*stage.notions, *stage.commands)
    notes = (*(text for _, text in pairs), *(flag.what for flag in stage.flags))
    assert max(map(len, (*entries, *notes))) < 80


def test_every_other_text_of_explain_is_short() -> None:
    for topic in topics():
        assert len(topic.summary) < 240, topic.name
        assert all(len(text) < 500 for text in topic.parts.values()), topic.name


# --- what torch really has ------------------------------------------------------------------------


def torch_folder() -> Path:
    """Where torch lies; nothing of it is imported."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def log_names() -> set[str]:
    tree = ast.parse((torch_folder() / "_logging" / "_registrations.py").read_text("utf-8"))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args]
    return {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name)
        and call.func.id in ("register_log", "register_artifact")
        and isinstance(call.args[0], ast.Constant)
    }


def setting_names(module: str) -> set[str]:
    """Names that a config module assigns, with the class around them."""
    path = torch_folder().parent / (module.replace(".", "/") + ".py")
    found: set[str] = set()

    def walk(body: list[ast.stmt], before: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                walk(node.body, f"{before}{node.name}.")
            targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
            found.update(before + t.id for t in targets if isinstance(t, ast.Name))

    walk(ast.parse(path.read_text("utf-8")).body, "")
    return found


def variable_names() -> set[str]:
    files = [
        *(torch_folder() / "_inductor").rglob("*.py"),
        *(torch_folder() / "_dynamo").glob("*.py"),
        *(torch_folder() / "_functorch").glob("*.py"),
    ]
    texts = (path.read_text("utf-8", errors="replace") for path in files)
    return {name for text in texts for name in re.findall(r"[\"']([A-Z][A-Z0-9_]+)[\"']", text)}


def test_every_flag_that_is_named_exists_in_the_installed_torch() -> None:
    known: dict[str, set[str]] = {"log": log_names(), "variable": variable_names()}
    for stage in STAGES:
        for flag in stage.flags:
            if flag.kind == "setting":
                module, _, name = flag.name.partition(".config.")
                assert name in setting_names(f"{module}.config"), f"{stage.name}: {flag.name}"
            else:
                assert flag.name in known[flag.kind], f"{stage.name}: {flag.name}"


@every_stage
def test_every_file_of_torch_that_is_named_exists(stage: StageEntry) -> None:
    missing = [path for path in stage.lives if not (torch_folder().parent / path).is_file()]
    assert missing == []


# --- the command ----------------------------------------------------------------------------------


def test_a_stage_in_words() -> None:
    answer = inductoscope("explain", "loop-body")
    assert answer.exit_code == 0
    for expected in (
        "ops.index_expr turns an index into a value, in the dtype that it names",
        "integer overflow with arange or large indices",
        "the loop body is right but the code is not → codegen",
        "TORCH_LOGS=ir_post_fusion",
        "inductoscope show --stage loop-body",
    ):
        assert expected in answer.words


def test_a_finding_is_explained_by_its_rule() -> None:
    for name in ("graph_breaks", "graph-breaks"):
        assert "What to do: torch's own hint is quoted" in inductoscope("explain", name).words


def test_a_name_that_means_two_things_is_explained_twice() -> None:
    data = inductoscope("explain", "fusion", "--json", "-").data
    assert [meaning["kind"] for meaning in data["meanings"]] == ["stage", "stall"]


@pytest.mark.parametrize(
    ("symptom", "stage"),
    [
        ("wrong gradient", "aot"),
        ("missed fusion", "fusion"),
        ("integer overflow", "loop-body"),
        ("ptxas hangs", "triton-compile"),
        ("compiles at every call", "recompiles"),
        ("symptom segmentation fault", "runtime"),
        ("unsupported operation", "lowering"),
    ],
)
def test_a_symptom_leads_to_its_stage(symptom: str, stage: str) -> None:
    data = inductoscope("explain", *symptom.split(), "--json", "-").data
    assert data["stages"][0]["name"] == stage


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("inductor hang", "hang (verdict of the doctor)"),
        ("autotune stuck", "autotune"),
        ("autotune hanging", "autotune"),
        ("compilation stuck", "triton-compile"),
        ("triton compilation hang", "triton-compile"),
        ("precompilation stuck", "autotune"),
    ],
)
def test_a_hang_in_any_words_leads_to_where_it_can_come_from(words: str, expected: str) -> None:
    assert expected in inductoscope("explain", *words.split()).words


def test_the_files_that_make_and_tune_configurations_are_named() -> None:
    shown = inductoscope("explain", "autotune").words
    for name in (
        "select_algorithm.py",
        "template_heuristics/triton.py",
        "runtime/coordinate_descent_tuner.py",
        "kernel/mm.py",
        "kernel/bmm.py",
    ):
        assert f"torch/_inductor/{name}" in shown


def test_the_word_that_tells_most_decides() -> None:
    symptom = ("loss", "is", "nan", "after", "compile")
    assert inductoscope("explain", *symptom).words.startswith("nan (verdict of the doctor)")
    data = inductoscope("explain", *symptom, "--json", "-").data
    assert [stage["name"] for stage in data["stages"]] == ["runtime"]


def test_words_that_every_symptom_holds_decide_nothing() -> None:
    assert [stage.name for stage, _ in stages_by_symptom(["the gradient is in the wrong"])] == [
        "aot"
    ]


def test_without_a_name_everything_is_listed() -> None:
    answer = inductoscope("explain")
    assert answer.exit_code == 0
    assert all(stage.name in answer.stdout for stage in STAGES)
    assert max(map(len, answer.stdout.splitlines())) <= 80


def test_an_unknown_name_suggests_the_nearest(snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("explain", "fuson")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert answer.words == snapshot
    assert inductoscope("explain", "purple", "monkey").words == snapshot
