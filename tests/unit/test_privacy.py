"""People attach recordings to public bug reports: nothing secret may be in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.recording.location import create_recording
from inductoscope.recording.privacy import may_be_stored, storable, without_secrets

SECRETS = {
    "SECRET_TOKEN": "s3cret-one",
    "AWS_SECRET_ACCESS_KEY": "s3cret-two",
    # The prefix is on the list, the name says that it is a secret.
    "TORCH_API_TOKEN": "s3cret-three",
    "PYTORCH_PASSWORD": "s3cret-four",
    "TORCHINDUCTOR_api_key": "s3cret-five",
    # Not secret by name, but nobody's business.
    "DATABASE_URL": "s3cret-six",
    "HOSTNAME": "s3cret-seven",
}
USEFUL = {
    "TORCH_LOGS": "+inductor",
    "TORCHINDUCTOR_MAX_AUTOTUNE": "1",
    "OMP_NUM_THREADS": "2",
    "RANK": "3",
}


@pytest.mark.parametrize("name", [*USEFUL, "CXX", "CUDA_VISIBLE_DEVICES", "TRITON_CACHE_DIR"])
def test_what_changes_the_compiler_is_kept(name: str) -> None:
    assert may_be_stored(name)


@pytest.mark.parametrize(
    "name",
    [*SECRETS, "PATH", "HOME", "USER", "LD_PRELOAD", "PYTHONPATH", "MY_TORCH_LOGS", "CC_TOKEN", ""],
)
def test_everything_else_is_left_out(name: str) -> None:
    assert not may_be_stored(name)


def test_only_what_is_on_the_list_is_taken_in_the_order_of_names() -> None:
    assert list(storable({**SECRETS, **USEFUL}).items()) == sorted(USEFUL.items())


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("train.py --epochs 1", "train.py --epochs 1"),
        ("train.py --hf-token s3cret --epochs 1", "train.py --hf-token (hidden) --epochs 1"),
        ("train.py --db_password=s3cret", "train.py --db_password=(hidden)"),
        ("train.py --Api-Key s3cret", "train.py --Api-Key (hidden)"),
        ("train.py --data s3://me:s3cret@host/x", "train.py --data s3://(hidden)@host/x"),
        ("train.py secret.txt", "train.py secret.txt"),
        ("train.py --token", "train.py --token"),
        ("", ""),
    ],
)
def test_a_command_line_loses_what_options_call_a_secret(typed: str, kept: str) -> None:
    assert without_secrets(typed.split()) == kept.split()


def test_an_address_in_a_variable_loses_its_password() -> None:
    found = storable({"TORCH_TRACE": "https://me:s3cret@host/x", "TORCH_LOGS": "a@b"})
    assert found == {"TORCH_TRACE": "https://(hidden)@host/x", "TORCH_LOGS": "a@b"}


def test_a_manifest_holds_what_is_useful_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**SECRETS, **USEFUL}.items():
        monkeypatch.setenv(name, value)
    folder = create_recording(["train.py"], output=tmp_path / "recording")
    environment = json.loads((folder / "recording.json").read_text())["environment"]
    assert environment.items() >= USEFUL.items()
    assert not environment.keys() & SECRETS.keys()


# Writes an event in a process, in a fork of it and in a process that it starts. The scope waits for
# torch, which is not needed here.
PROGRAM = """
import os, subprocess, sys
from inductoscope.inside.start import start
from inductoscope.inside.scope import SCOPE
from inductoscope.recording.events import CallsUnchecked

start(os.environ["INDUCTOSCOPE_RECORDING"])
SCOPE.emit(CallsUnchecked(compile="0/0"))
if "started" not in sys.argv:
    if os.fork() == 0:
        SCOPE.emit(CallsUnchecked(compile="0/0"))
        os._exit(0)
    os.wait()
    subprocess.run([sys.executable, *sys.argv, "started"], check=True)
assert os.environ["SECRET_TOKEN"] == "s3cret-one"
"""


def test_a_recorded_run_leaves_no_secret_in_any_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    run = [sys.executable, "-m", "inductoscope", "run", "--output", "recording", "train.py"]
    run += ["--hf-token", "s3cret-eight"]
    environment = {**os.environ, **SECRETS, **USEFUL}
    done = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, check=False)
    assert done.returncode == 0

    assert len(list((tmp_path / "recording" / "streams").glob("*.jsonl"))) == 4
    files = [path for path in (tmp_path / "recording").rglob("*") if path.is_file()]
    content = b"\n".join(path.read_bytes() for path in files)
    assert content.count(b"+inductor") == 5
    assert b"s3cret" not in content + done.stdout + done.stderr
