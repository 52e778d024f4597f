"""The way past a hang: a variable, a snippet and a patch that leave out stuck configurations."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from inductoscope.hangs.choices.contrast import ChoiceCondition, contrast
from inductoscope.hangs.choices.filters import (
    PATCHED,
    VARIABLE,
    assignment_for,
    patch_for,
    pattern_for,
    snippet_for,
)
from support.examples import inductoscope

WARPS = {"BLOCK_K": 32, "BLOCK_M": 64, "num_stages": 3, "num_warps": 8}
STUCK = [WARPS, {**WARPS, "BLOCK_M": 128}]
FINISHED = [{**WARPS, "num_warps": 4}, {**WARPS, "num_warps": 2}]
SOURCE = (Path(torch.__file__).parent.parent / PATCHED).read_text()

LOGS = Path(__file__).resolve().parents[1] / "data" / "recorded_logs"
HANG = LOGS / "h200_autotune_hang.log.gz"
HEALTHY = LOGS / "h200_autotune_ok.log.gz"


@pytest.fixture(scope="module")
def condition() -> ChoiceCondition:
    """num_warps=8"""
    return contrast(STUCK, FINISHED)[0]


def described(configuration: dict[str, int]) -> str:
    """As torch describes a choice."""
    return ", ".join(f"{name}={value}" for name, value in sorted(configuration.items()))


def test_the_variable_keeps_all_choices_but_the_stuck_ones(condition: ChoiceCondition) -> None:
    pattern = pattern_for(condition, STUCK)
    assert not any(re.search(pattern, described(config)) for config in STUCK)
    assert all(re.search(pattern, described(config)) for config in FINISHED)
    assert re.search(pattern, "")  # A choice of eager's own has no description.
    assert re.search(pattern, described({**WARPS, "num_warps": 80}))


def test_of_a_bound_the_variable_names_the_values_that_were_seen() -> None:
    large = [{**WARPS, "BLOCK_K": 128}, {**WARPS, "BLOCK_K": 256}]
    (condition,) = contrast(large, [WARPS])
    assert condition.text == "BLOCK_K≥128"
    pattern = pattern_for(condition, large)
    assert [bool(re.search(pattern, described(config))) for config in (*large, WARPS)] == [
        False,
        False,
        True,
    ]


def test_a_value_with_quotes_in_it_still_fits_into_a_shell() -> None:
    stuck = [{"ACC_TYPE": "tl.float32"}]
    (condition,) = contrast(stuck, [{"ACC_TYPE": "tl.float16"}])
    said = assignment_for(condition, stuck)
    done = subprocess.run(["sh", "-c", f"{said} env"], capture_output=True, text=True, check=True)
    assert f"{VARIABLE}={pattern_for(condition, stuck)}" in done.stdout.splitlines()


def test_the_snippet_filters_what_torch_is_about_to_compile(condition: ChoiceCondition) -> None:
    choices = "[Choice(text) for text in " + repr([*map(described, STUCK + FINISHED), ""]) + "]"
    check = f"""
class Choice:
    def __init__(self, description):
        self.description = description

from torch._inductor.select_algorithm import get_algorithm_selector_cache
(ours,) = [f for f in get_algorithm_selector_cache().preprocessing_fns if "stuck" in f.__name__]
print(sorted(c.description.rpartition("=")[2] for c in ours({choices})))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", snippet_for(condition) + check],
        capture_output=True,
        text=True,
    )
    assert done.stdout.split("\n")[0] == "['', '2', '4']", done.stderr


def test_the_snippet_says_why(condition: ChoiceCondition) -> None:
    assert snippet_for(condition).startswith(
        "# Choices with num_warps=8 never finished compiling\n# (2 of 2 stuck, 0 of 2 finished).\n"
    )


@pytest.mark.parametrize("device", ["cuda", "hip"])
def test_the_patch_applies_to_the_installed_torch(
    condition: ChoiceCondition, device: str, tmp_path: Path
) -> None:
    patch = patch_for(condition, SOURCE, device=device)
    target = tmp_path / PATCHED
    target.parent.mkdir(parents=True)
    target.write_text(SOURCE)
    subprocess.run(["patch", "-p1", "--quiet"], input=patch, cwd=tmp_path, text=True, check=True)
    patched = target.read_text()
    compile(patched, str(target), "exec")
    assert "num_warps == 8:\n                continue" in patched
    added = [line for line in patch.splitlines() if line.startswith("+") and line[1:2] != "+"]
    assert len(added) == 5  # A comment of two lines, the filter, a blank line.


def test_no_configuration_of_a_patched_torch_has_what_hangs(
    condition: ChoiceCondition, tmp_path: Path
) -> None:
    patch = patch_for(condition, SOURCE)
    file = tmp_path / PATCHED
    file.parent.mkdir(parents=True)
    file.write_text(SOURCE)
    subprocess.run(["patch", "-p1", "--quiet"], input=patch, cwd=tmp_path, text=True, check=True)
    check = """
import sys, torch._inductor.template_heuristics.triton as module
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), module.__dict__)
maker = module.BaseConfigHeuristic()
maker.triton_config = lambda stages, warps, **more: warps  # Triton need not be installed.
made = maker._finalize_mm_configs(list(maker.mm_configs))
print(sorted(set(made)))
"""
    run = [sys.executable, "-W", "ignore", "-c", check]
    plain = subprocess.run([*run, module_file()], capture_output=True, text=True)
    patched = subprocess.run([*run, str(file)], capture_output=True, text=True)
    assert plain.stdout.strip() == "[2, 4, 8]", plain.stderr
    assert patched.stdout.strip() == "[2, 4]", patched.stderr


def module_file() -> str:
    return str(Path(torch.__file__).parent.parent / PATCHED)


def test_there_is_no_patch_for_what_torch_does_not_decide_there() -> None:
    (condition,) = contrast([{"EVEN_K": True}], [{"EVEN_K": False}])
    assert patch_for(condition, SOURCE) == ""
    assert patch_for(contrast(STUCK, FINISHED)[0], "def broken(:") == ""


def test_a_log_alone_is_enough_for_the_filter(tmp_path: Path) -> None:
    answer = inductoscope("logs", HANG, "--filter", tmp_path / "filter")
    assert answer.exit_code == 1
    assert "TORCHINDUCTOR_AUTOTUNE_CHOICE_DESC_REGEX=" in answer.stdout
    assert "not tried" in answer.stdout
    assert 'config["num_warps"] == 8' in (tmp_path / "filter" / "filter.py").read_text()
    assert "+            if num_warps == 8:" in (tmp_path / "filter" / "filter.patch").read_text()


def test_a_log_without_a_hang_has_nothing_to_leave_out(tmp_path: Path) -> None:
    answer = inductoscope("logs", HEALTHY, "--filter", tmp_path / "filter")
    assert answer.exit_code == 2
    assert "--filter has nothing to write" in answer.words
    assert not (tmp_path / "filter").exists()
