"""The machine in a verdict: the one that it was made on."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from inductoscope.doctor.common_verdicts import asks_for_missing_gpu, this_machine


@pytest.fixture(autouse=True)
def _all_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_a_machine_without_a_gpu(tmp_path: Path) -> None:
    assert this_machine(tmp_path) == f"{platform.machine()}, no GPU"


def test_gpus_are_named_once(tmp_path: Path) -> None:
    for number in range(2):
        place = tmp_path / f"proc/driver/nvidia/gpus/0000:{number}"
        place.mkdir(parents=True)
        (place / "information").write_text("Model: \t\t NVIDIA H200\nIRQ:   16\n")
    assert this_machine(tmp_path).endswith(", NVIDIA H200")


def test_gpus_that_are_hidden_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").touch()
    assert this_machine(tmp_path).endswith(", an NVIDIA GPU")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert this_machine(tmp_path).endswith(", no GPU")


def test_a_program_that_needs_a_gpu_is_told_from_one_that_fails() -> None:
    assert asks_for_missing_gpu("AssertionError: Torch not compiled with CUDA enabled")
    assert not asks_for_missing_gpu("RuntimeError: CUDA error: an illegal memory access")
