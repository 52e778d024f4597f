"""The models cover what they should, and the runner counts, resumes, plants and judges rightly."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from battery.models import measure
from battery.models.catalogue import FEATURES, LIBRARIES, read_models
from battery.models.install import declare_operators
from battery.models.planting import choose_models, draw, fitting_recipes, shows
from battery.models.run import read_results
from battery.models.table import is_right, render_markdown, render_text
from battery.models.trial import (
    COULD_NOT_RUN,
    Conditions,
    Cost,
    ModelResult,
    examine_healthy,
    result_from,
    run_plain,
)
from battery.trial import Outcome

MODELS = read_models()
CLEAN = ModelResult(
    name="gpt2_train",
    planted="",
    verdict="clean",
    stage="none",
    summary="Nothing found.",
    confidence="proven",
    not_checked=("some calls of 1 graph after the first 8",),
    nodes=120,
    operations=("_softmax", "embedding", "gelu", "native_layer_norm", "tanh"),
    plain_exit=0,
    plain=Cost(20.0, 30.0, 500 << 20),
    doctor=Cost(50.0, 54.0, 900 << 20),
)


def test_there_are_enough_models_and_each_says_what_it_does() -> None:
    assert len(MODELS) >= 40
    assert {model.library for model in MODELS} == {*LIBRARIES, "torch.nn"}
    for model in MODELS:
        assert ast.get_docstring(ast.parse(model.text)), model.name
        assert "torch.compile" in model.text or ".compile()" in model.text, model.name


@pytest.mark.parametrize("feature", FEATURES)
def test_every_way_of_using_the_compiler_is_covered(feature: str) -> None:
    assert any(feature in model.features for model in MODELS)


def test_models_are_chosen_by_parts_of_their_names() -> None:
    assert [m.name for m in read_models(only=("gpt2", "swin"))] == ["gpt2_train", "swin_train"]


# A grandchild that nobody waits for uses half a second of processor time.
_BUSY = """
import os, time
done, tell = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        held = bytearray(64 << 20)
        while time.process_time() < 0.5:
            pass
        os.write(tell, b"done")
        time.sleep(60)
    os._exit(0)
os.wait()
os.read(done, 4)
os._exit(3)
"""


def test_the_cost_of_a_command_includes_processes_that_it_left_running(tmp_path: Path) -> None:
    written = tmp_path / "cost.json"
    command = [sys.executable, measure.__file__, str(written), sys.executable, "-c", _BUSY]
    assert subprocess.run(command).returncode == 3
    cost = json.loads(written.read_text())
    assert cost["exit_code"] == 3
    assert cost["cpu_seconds"] >= 0.5
    assert cost["peak_bytes"] > 64 << 20
    assert cost["seconds"] < 60


def test_a_model_runs_with_an_empty_cache_and_nothing_is_downloaded(tmp_path: Path) -> None:
    script = tmp_path / "model.py"
    script.write_text(
        "import os\nprint(os.path.exists(os.environ['TORCHINDUCTOR_CACHE_DIR']),"
        " os.environ['HF_HUB_OFFLINE'])"
    )
    model = read_models(tmp_path)[0]
    outcome, cost = run_plain(model, tmp_path / "work", Conditions(limit=60))
    assert outcome.output.split() == ["False", "1"]
    assert cost.peak_bytes > 0


def test_a_script_that_fails_without_the_doctor_accuses_nobody(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import a_library_that_is_not_here")
    result = examine_healthy(read_models(tmp_path)[0], tmp_path / "work", Conditions(limit=60))
    assert (result.verdict, result.plain_exit, result.doctor.seconds) == (COULD_NOT_RUN, 1, 0.0)
    assert "a_library_that_is_not_here" in result.summary
    text = render_text([CLEAN, result])
    assert "1 of 1 healthy models are clean" in text
    assert "1 could not run, even without the doctor" in text


def test_results_are_read_back_and_a_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "models.jsonl"
    planted = replace(CLEAN, planted="lowering-tanh-wrong-result", named=True, verified=True)
    path.write_text(f"{CLEAN.as_json()}\n{planted.as_json()}\n{CLEAN.as_json()[:40]}")
    assert [*read_results(path).values()] == [CLEAN, planted]
    assert result_from(json.loads(CLEAN.as_json())).cpu_ratio == pytest.approx(1.8)


def test_only_faults_in_operations_of_the_model_are_planted() -> None:
    fitting = [recipe for recipes in fitting_recipes(CLEAN).values() for recipe in recipes]
    names = {recipe.operation for recipe in fitting}
    assert {"gelu", "tanh", "embedding"} <= names
    assert not {"cumsum", "conv2d", "sort"} & names


def test_a_seed_draws_the_same_models_and_faults_again() -> None:
    results = [replace(CLEAN, name=model.name) for model in MODELS]
    chosen = choose_models(results, 10, seed=3)
    assert len(chosen) == 10
    assert chosen == choose_models(results, 10, seed=3)
    assert chosen != choose_models(results, 10, seed=4)
    drawn = [recipe.name for recipe in draw(CLEAN, 3)]
    assert drawn == [recipe.name for recipe in draw(CLEAN, 3)]
    assert len({*drawn}) == len(drawn)


@pytest.mark.parametrize(
    ("kind", "printed", "exit_code", "is_seen"),
    [
        ("wrong-result", "0 6.932855\n1 6.31\n", 0, False),
        ("wrong-result", "0 6.932856\n1 6.31\n", 0, False),
        ("wrong-result", "0 6.99\n1 6.31\n", 0, True),
        ("nan", "0 nan\n1 nan\n", 0, True),
        ("wrong-result", "/x.py:3: UserWarning: 17\n0 6.932855\n1 6.31\n", 0, False),
        ("wrong-result", "[W1116 10:15:06.1 x.cpp:84] slow\n0 6.932855\n1 6.31\n", 0, False),
        # A graph that is broken by the fault shows another one than was meant.
        ("wrong-result", "0 6.932855\n1 6.31\n", 1, False),
        ("crash", "0 6.932855\n", 1, True),
        ("crash", "0 6.99\n1 6.31\n", 0, False),
    ],
)
def test_a_fault_shows_if_the_program_ends_or_prints_differently(
    kind: str, printed: str, exit_code: int, is_seen: bool
) -> None:
    expected = Outcome(0, "0 6.932855\n1 6.31\n", 1.0)
    assert shows(kind, expected, Outcome(exit_code, printed, 1.0)) is is_seen


def test_healthy_models_have_to_be_clean_and_faults_named_and_proven() -> None:
    accused = replace(CLEAN, verdict="wrong-result", stage="lowering")
    planted = replace(accused, planted="lowering-tanh-wrong-result", named=True)
    assert is_right(CLEAN)
    assert not is_right(accused)
    assert not is_right(planted)
    assert is_right(replace(planted, verified=True))


def test_the_tables_say_what_was_found_and_what_it_cost() -> None:
    accused = replace(CLEAN, name="swin_train", verdict="wrong-result", stage="lowering")
    page = render_markdown(MODELS, [CLEAN, accused], "Today.")
    assert "| gpt2_train | Two training steps of a small GPT-2. | 120 | clean, proven |" in page
    assert "| 54 (30) | 1.8 x | 900 (500) | 1.8 x |" in page
    assert "**wrong-result · lowering**" in page
    assert "1 of 2 healthy models are clean" in render_text([CLEAN, accused])


def test_operators_of_torchvision_are_declared_once(tmp_path: Path) -> None:
    path = tmp_path / "extension.py"
    path.write_text("import torch\n\ndef _has_ops():\n    return False\n")
    declare_operators(path)
    text = path.read_text()
    declare_operators(path)
    assert path.read_text() == text
    ast.parse(text)
