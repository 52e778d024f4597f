"""`--json`: what every command prints is as docs/schemas says, and is nothing but JSON."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.cli import COMMANDS
from inductoscope.doctor.verdict import Repro, Verdict, Workaround
from inductoscope.model.fault_trail import FaultTrail, TrailBuffer, TrailStep
from inductoscope.recording.location import FOLDER_VARIABLE
from support.examples import NAMES, RECORDINGS, inductoscope, stored
from support.json_schema import SCHEMAS, violations

LOGS = RECORDINGS.parent / "recorded_logs"
KERNELS = RECORDINGS.parents[1] / "unit/torch_facts/samples/triton_kernels/torch-2.13"
PACKAGES = RECORDINGS.parent / "packages"
CHAIN, TRAINING = stored("relu_add_sum"), stored("training_step")
TOOL = [sys.executable, "-m", "inductoscope"]

# Commands that have no --json: it would be the same text in quotes, or they speak JSON anyway.
WITHOUT_JSON = {"completion", "skill", "mcp"}
# Their JSON is held against its schema where they are tested with torch.
CHECKED_ELSEWHERE = {"doctor", "env", "attach", "profile", "preflight"}

ANSWERS: dict[str, tuple[str | Path, ...]] = {
    **{f"summary of {name}": ("show", stored(name)) for name in NAMES},
    "a stage": ("show", CHAIN, "--stage", "scheduler"),
    "a kernel": ("show", CHAIN, "--kernel", "fused"),
    "an operation": ("show", CHAIN, "--op", "relu"),
    "a line": ("show", TRAINING, "--source", "script.py"),
    "a graph": ("show", CHAIN, "--runnable", "0/0 dynamo", "--to", "graph.py"),
    "all recordings": ("show", "--list"),
    "recordings": ("recordings", "list"),
    "recordings deleted": ("recordings", "prune", "--keep", "1", "--dry-run"),
    "the ledger": ("fusion", TRAINING),
    "a pair": ("fusion", CHAIN, "--why", "relu", "add"),
    "bounds": ("bounds", TRAINING),
    "a difference": ("diff", CHAIN, TRAINING),
    "a hang": ("logs", LOGS / "h200_autotune_hang.log.gz"),
    "no hang": ("logs", LOGS / "h200_autotune_ok.log.gz"),
    "the page": ("report", CHAIN, "-o", "page.html", "--assembly", "0"),
    "files": ("export", CHAIN, "--to", "exported"),
    "everything that can be explained": ("explain",),
    "a finding explained": ("explain", "graph_breaks"),
    "a symptom explained": ("explain", "wrong", "gradient"),
    "a kernel's file": ("kernel", KERNELS / "softmax.txt", "--show", "source"),
    "a package": ("aoti", PACKAGES / "small.pt2"),
    "an exported program": ("aoti", PACKAGES / "exported.pt2"),
}


@pytest.mark.parametrize("words", ANSWERS.values(), ids=ANSWERS)
def test_every_command_prints_what_its_schema_says(
    words: tuple[str | Path, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "recordings"))
    for name in ("relu_add_sum", "training_step"):
        shutil.copytree(stored(name), tmp_path / "recordings" / name)
    answer = inductoscope(*words, "--json", "-")
    assert violations(str(words[0]), answer.data) == []
    assert answer.data["schema"] == 1


def test_every_command_has_a_schema_and_is_held_against_it() -> None:
    described = {path.stem for path in SCHEMAS.glob("*.json")}
    assert described == set(COMMANDS) - WITHOUT_JSON
    here = {str(words[0]) for words in ANSWERS.values()} | {"run", "serve"}
    assert described == here | CHECKED_ELSEWHERE


def test_a_verdict_with_everything_in_it_is_as_the_schema_of_the_doctor_says() -> None:
    proof, way = Repro("repro.py", True, 3, 3, 2), Workaround("Switch it off.", True, 1.02)
    step = TrailStep("cpp_fused_0", 1, (TrailBuffer("buf0"),), (TrailBuffer("arg0_1"),))
    trail = FaultTrail("0/0", "0/0 inference", 1, (step,))
    full = Verdict("nan", "codegen", "It is NaN.", repro=proof, workaround=way, trail=trail)
    for verdict in (full, Verdict("clean", "none", "Nothing was found.")):
        verdict.add("a run shows it", "train.py:3")
        assert violations("doctor", json.loads(json.dumps(verdict.as_data()))) == []


def test_the_programs_own_output_does_not_get_into_the_json(tmp_path: Path) -> None:
    script = tmp_path / "speaks.py"
    script.write_text("import os\nprint('epoch 1')\nos.system('echo from a child')\n")
    run = [*TOOL, "run", "--output", str(tmp_path / "recording"), "--json", "-", str(script)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert violations("run", json.loads(done.stdout)) == []
    assert {"epoch 1", "from a child"} <= set(done.stderr.splitlines())


def test_json_in_a_file_leaves_the_programs_output_where_it_was(tmp_path: Path) -> None:
    script, target = tmp_path / "speaks.py", tmp_path / "summary.json"
    script.write_text("print('epoch 1')\n")
    run = [*TOOL, "run", "--output", str(tmp_path / "recording"), "--json", str(target)]
    done = subprocess.run([*run, str(script)], capture_output=True, text=True)
    assert done.stdout == "epoch 1\n"
    assert violations("run", json.loads(target.read_text("utf-8"))) == []


def test_where_the_page_is_served(tmp_path: Path) -> None:
    target = tmp_path / "address.json"
    words = [*TOOL, "serve", str(CHAIN), "--json", str(target)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip()  # Printed once it listens.
        server.send_signal(signal.SIGINT)
    data = json.loads(target.read_text("utf-8"))
    assert violations("serve", data) == []
    assert data["address"] == address


def test_what_is_not_described_is_noticed() -> None:
    data = inductoscope("show", CHAIN, "--json", "-").data
    assert violations("show", {**data, "colour": "red"}) == [
        "show has colour, which docs/schemas does not describe: add it there"
    ]
    del data["totals"]["graphs"]
    assert violations("show", data) == ["show.totals lacks graphs"]
