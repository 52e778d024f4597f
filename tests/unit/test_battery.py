"""The battery is complete and repeatable, its judge strict, and stored scripts are read."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
from battery.fault import CLEAN, FAULTY_KINDS, STAGES, Fault
from battery.generate import generate
from battery.judge import Result, judge, occurs
from battery.paths import without_folders
from battery.plants import RECIPES
from battery.programs import TEMPLATES
from battery.run import read_results
from battery.stored import read_stored
from battery.table import BATTERY as PAGE
from battery.table import list_misses, make_rows, render_markdown, render_text
from battery.trial import Outcome, make_environment, shows_symptom, write_files

BATTERY = {fault.name: fault for fault in generate(0)}
FAULTS = [fault for fault in BATTERY.values() if not fault.healthy]


def make_verdict(fault: Fault, **changes: Any) -> dict[str, Any]:
    """A correct verdict of this fault."""
    truth = fault.truth
    return {
        "verdict": truth.kind,
        "stage": truth.stage,
        "summary": " ".join(truth.culprit_names[:1]).upper(),
        "repro": {"verified": True, "nodes": 2},
        **changes,
    }


def test_names_are_unique() -> None:
    assert len(BATTERY) == len(generate(0))


def test_there_are_enough() -> None:
    assert len(FAULTS) >= 60
    assert len(BATTERY) - len(FAULTS) >= 12


def test_every_stage_and_kind_is_covered() -> None:
    assert {fault.truth.kind for fault in FAULTS} == {*FAULTY_KINDS}
    assert {fault.truth.stage for fault in FAULTS} == {*STAGES}


def test_a_seed_makes_the_same_battery_again() -> None:
    assert generate(7) == generate(7)


def test_another_seed_makes_other_programs_around_the_same_faults() -> None:
    one, other = generate(0), generate(1)
    assert [fault.name for fault in one] == [fault.name for fault in other]
    assert [fault.plant for fault in one] == [fault.plant for fault in other]
    assert sum(a.script != b.script for a, b in zip(one, other, strict=True)) >= 60


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_programs_and_plants_are_python(seed: int) -> None:
    for fault in generate(seed):
        ast.parse(fault.script)
        ast.parse(fault.plant)


def test_faults_are_named_and_healthy_programs_have_none() -> None:
    assert all(fault.truth.culprit_names for fault in FAULTS)
    assert all({*fault.truth.stages} <= {*STAGES, "none"} for fault in FAULTS)
    healthy = [fault for fault in BATTERY.values() if fault.healthy]
    assert all(not fault.plant and fault.truth.stage == "none" for fault in healthy)


def test_templates_of_recipes_exist() -> None:
    assert {name for recipe in RECIPES for name in recipe.templates} <= {*TEMPLATES}


def test_only_the_plant_is_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOGS", "+inductor")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    fault = BATTERY["lowering-cumsum-crash"]
    write_files(fault, tmp_path)
    found = make_environment(fault, tmp_path, tmp_path / "cache")
    assert (Path(found["PYTHONPATH"]) / "sitecustomize.py").read_text() == fault.plant
    assert "TORCH_LOGS" not in found


def test_a_right_verdict_is_right() -> None:
    for fault in BATTERY.values():
        result = judge(fault, make_verdict(fault), 1.0)
        assert result.named, fault.name
        assert result.minimised


@pytest.mark.parametrize(
    "changes",
    [{"verdict": "clean"}, {"stage": "triton-compile"}, {"summary": "something else"}],
)
def test_a_wrong_verdict_is_a_miss(changes: dict[str, Any]) -> None:
    fault = BATTERY["lowering-cumsum-crash"]
    result = judge(fault, make_verdict(fault, **changes), 1.0)
    assert not result.named
    assert fault.name in list_misses([result])[0]


def test_a_missing_verdict_is_a_miss_that_says_why() -> None:
    result = judge(BATTERY["lowering-cumsum-crash"], None, 300.0, "no end within 300 s")
    assert not result.named
    assert "no end within 300 s" in list_misses([result])[0]


def test_a_short_name_counts_only_as_a_word() -> None:
    assert occurs("sin", "kernel cpp_fused_sin_0")
    assert occurs("cumsum", "aten.CumSum.default")
    assert not occurs("sin", "using the cache since then")


def test_paths_do_not_give_the_culprit_away() -> None:
    for fault in FAULTS:
        assert not any(occurs(name, fault.folder) for name in fault.truth.culprit_names)


def test_a_long_reproducer_is_not_minimal() -> None:
    fault = BATTERY["lowering-cumsum-crash"]
    repro = {"verified": True, "nodes": 20}
    assert not judge(fault, make_verdict(fault, repro=repro), 1.0).minimised
    assert not judge(fault, make_verdict(fault, repro=None), 1.0).verified


def test_symptoms_are_told_apart() -> None:
    wrong = Outcome(1, "finite: True same: False", 9.0)
    raised = Outcome(1, "Traceback (most recent call last):\n  …\nCppCompileError: no", 9.0)
    shown = {
        outcome: {f.truth.kind for f in BATTERY.values() if shows_symptom(f, outcome)}
        for outcome in (wrong, raised, Outcome(-11, "", 9.0), Outcome(None, "", 9.0))
    }
    innocent = {"not-a-bug", "not-inductor"}
    assert list(shown.values()) == [
        {"wrong-result"} | innocent,
        {"compile-error"} | innocent,
        {"crash"} | innocent,
        {"hang"},
    ]


def test_results_are_read_back(tmp_path: Path) -> None:
    results = [judge(fault, make_verdict(fault), 2.5) for fault in BATTERY.values()]
    path = tmp_path / "results.jsonl"
    path.write_text("".join(result.as_json() + "\n" for result in results) + '{"name": "cut sh')
    assert [*read_results(path).values()] == results
    assert read_results(tmp_path / "none.jsonl") == {}


def test_tables_count_and_list_what_was_missed() -> None:
    results: list[Result] = []
    for fault in BATTERY.values():
        wrong = fault.name == "lowering-cumsum-crash"
        verdict = make_verdict(fault, **({"verdict": CLEAN} if wrong else {}))
        results.append(judge(fault, verdict, 4.0))
    rows = {row[0]: row for row in make_rows(results)}
    assert [*rows] == [*FAULTY_KINDS, CLEAN, "all"]
    assert rows["all"][1:3] == (str(len(BATTERY)), f"{len(BATTERY) - 1} of {len(BATTERY)}")
    assert rows[CLEAN][3] == "-"
    for text in (render_text(results), render_markdown(results, PAGE, "today")):
        assert "Misses: 1" in text
        assert "lowering-cumsum-crash: said clean" in text


# --- labelled scripts on disk ---------------------------------------------------------------------

CASES = Path(__file__).resolve().parents[1] / "cases"


def write_case(folder: Path, **changes: Any) -> Path:
    truth = {"kind": "crash", "stage": "lowering", "stage_also_ok": [], "culprit_names": ["sin"]}
    folder.mkdir(parents=True)
    (folder / "script.py").write_text("import torch\n")
    (folder / "truth.json").write_text(json.dumps({**truth, **changes}))
    return folder


def test_every_stored_script_has_a_truth_in_the_words_of_a_verdict() -> None:
    stored = read_stored([CASES])
    assert {fault.name for fault in stored} == {path.name for path in CASES.iterdir()}
    for fault in stored:
        ast.parse(fault.script)
        assert fault.truth.kind in (*FAULTY_KINDS, CLEAN), fault.name
        assert {*fault.truth.stages} <= {*STAGES, "none"}, fault.name


def test_a_stored_script_may_have_a_plant_and_no_other_environment(tmp_path: Path) -> None:
    folder = write_case(tmp_path / "with_plant", env={"PYTHONPATH": "{case}/plant"})
    (folder / "plant").mkdir()
    (folder / "plant" / "sitecustomize.py").write_text("x = 1\n")
    write_case(tmp_path / "plain", env={})
    plain, planted = read_stored([tmp_path, tmp_path / "missing"])
    assert (plain.plant, planted.plant) == ("", "x = 1\n")
    write_case(tmp_path / "other", env={"TORCH_LOGS": "+inductor"})
    with pytest.raises(ValueError, match="TORCH_LOGS"):
        read_stored([tmp_path])


def test_tables_name_no_folder_of_the_machine() -> None:
    text = "crashed at /home/me/.venv/site-packages/torch/_inductor/ir.py:3, script.py:8"
    assert without_folders(text) == "crashed at torch/_inductor/ir.py:3, script.py:8"
    assert without_folders("at /opt/env/timm/layers/x.py:1") == "at timm/layers/x.py:1"
