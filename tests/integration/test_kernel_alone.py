"""Kernels compiled alone, by Triton itself and for devices that are not there."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import pytest

from inductoscope.kernels.alone import KernelRequest, make_plans
from inductoscope.torch_facts.triton_kernels import read_kernel_file
from support.examples import inductoscope
from support.json_schema import violations
from support.kernel_files import stored
from support.waiting import wait_until

pytestmark = pytest.mark.spread

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)

# Its compile needs Triton only, which loads faster than torch.
SMALL = stored("users_autotuned")

COMMAND = "from inductoscope.cli.commands.kernel import command; command()"


def processes_about(text: str) -> list[str]:
    """The command lines, of all processes, that hold a text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in words:
            found.append(words)
    return found


def stand_in(folder: Path) -> Path:
    """A ptxas that says its version and then never ends; it leaves a mark when it is asked."""
    path = folder / "assembler.sh"
    path.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then\n'
        '  echo "Cuda compilation tools, release 12.9, V12.9.86"; exit 0\n'
        "fi\n"
        f"touch {folder}/asked\n"
        f"tail -f {folder}/assembler.sh\n"
    )
    path.chmod(0o755)
    return path


# --- without Triton -------------------------------------------------------------------------------


def test_without_triton_it_is_said_what_to_install() -> None:
    with mock.patch("importlib.util.find_spec", return_value=None):
        answer = inductoscope("kernel", SMALL, "--quiet")
    assert answer.exit_code == 3
    assert "pip install triton" in answer.words


# --- kernels that compile -------------------------------------------------------------------------


@needs_triton
@pytest.mark.smoke
def test_a_kernel_that_compiles_alone(tmp_path: Path) -> None:
    answer = inductoscope("kernel", SMALL, "--output", tmp_path / "out")
    assert answer.exit_code == 0
    assert re.search(r"add_auto compiles alone for cuda:90 in [\d.]+ s", answer.words)
    assert "the hang is elsewhere" in answer.words
    assert "nothing ran on a GPU" in answer.words
    assert re.search(r"registers \d+, spills \(bytes\) 0, shared memory \(bytes\) 0", answer.words)
    assert "stage llir" in answer.stderr  # What is being done, while it is done.
    assert max(map(len, answer.stdout.splitlines())) <= max(80, len(str(tmp_path)) + 60)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"kernel.ttir", "kernel.ttgir", "kernel.llir", "kernel.ptx", "alone.py"} <= names
    assert "tt.func public @add_auto" in (tmp_path / "out" / "kernel.ttir").read_text()


@needs_triton
def test_the_stages_are_timed_and_nothing_follows_for_another_device() -> None:
    data = inductoscope(
        "kernel", SMALL, "--target", "hip:gfx942", "--show", "amdgcn", "--quiet", "--json", "-"
    ).data
    assert violations("kernel", data) == []
    (attempt,) = data["trials"][0]["attempts"]
    names = [stage["name"] for stage in attempt["stages"]]
    assert names == ["preparation", "source", "ttir", "ttgir", "llir", "amdgcn", "hsaco"]
    assert all(stage["seconds"] >= 0 for stage in attempt["stages"])
    assert attempt["resources"]["registers"] > 0
    assert "generated for cuda:90, which this did not test" in data["summary"]
    assert ".amdgcn_target" in data["shown"]["text"]
    assert data["ran_on_gpu"] is False


@needs_triton
def test_every_configuration_in_one_table() -> None:
    answer = inductoscope("kernel", SMALL, "--all-configs", "--quiet")
    assert answer.exit_code == 0
    rows = [line for line in answer.stdout.splitlines() if "BLOCK=" in line and "num_" in line]
    assert "BLOCK=64, num_warps=2, num_stages=3" in " ".join(rows)
    assert "BLOCK=128, num_warps=4, num_stages=2" in " ".join(rows)
    assert "2 of 2 times" in answer.words
    assert max(map(len, answer.stdout.splitlines())) <= 80


@needs_triton
def test_torch_is_asked_for_what_it_would_choose_at_run_time() -> None:
    pytest.importorskip("torch")
    kernel = read_kernel_file(stored("transposed_add"))
    plans = make_plans(kernel, KernelRequest(all_configs=True))
    assert len(plans) > 1
    for plan in plans:
        assert plan.config.values.keys() == {"YBLOCK", "XBLOCK", "num_warps", "num_stages"}
        assert "heuristics of the installed torch" in plan.config.origin


@needs_triton
def test_the_script_is_a_proof_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    inductoscope("kernel", SMALL, "--show", "source", "--script", script)
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TRITON_CACHE_DIR": str(tmp_path)},
    )
    assert done.returncode == 0
    assert re.search(r"compiled in \d+\.\d\d s", done.stdout)


# --- kernels that do not --------------------------------------------------------------------------


@needs_triton
def test_a_kernel_that_fails_alone_says_where_and_why() -> None:
    answer = inductoscope("kernel", SMALL, "--config", "BLOCK=100", "--quiet")
    assert answer.exit_code == 1
    assert "fails alone for cuda:90 in stage source: CompilationError" in answer.words
    assert "arange's range must be a power of 2" in answer.words


@needs_triton
def test_an_assembler_that_never_ends_is_named_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(stand_in(tmp_path)))
    began = time.monotonic()
    answer = inductoscope("kernel", SMALL, "--timeout", "8", "--quiet")
    assert answer.exit_code == 1
    assert (
        "alone does not finish compiling within 8 s: stage cubin (child ptxas, sleeping)"
        in answer.words
    )
    assert time.monotonic() - began < 40
    assert processes_about(str(tmp_path)) == []


@needs_triton
def test_an_endless_unrolling_is_the_compilers_own(tmp_path: Path) -> None:
    path = tmp_path / "unrolled.py"
    line = "    for k in tl.static_range(10**8):\n        i += k * i\n"
    path.write_text(SMALL.read_text().replace("    m = i < n\n", f"{line}    m = i < n\n"))
    data = inductoscope("kernel", path, "--timeout", "8", "--quiet", "--json", "-").data
    assert data["verdict"] == "does not end alone"
    (attempt,) = data["trials"][0]["attempts"]
    assert attempt["unfinished_stage"] == "source"
    assert attempt["waits_for"] is None
    assert attempt["itself"]["busy"] > 0


@needs_triton
def test_a_legitimate_configuration_that_llvm_is_slow_with() -> None:
    settings = "BLOCK_M=256,BLOCK_N=256,BLOCK_K=128,num_warps=4,num_stages=1"
    answer = inductoscope(
        "kernel", stored("matmul_float32"), "--config", settings, "--timeout", "5", "--quiet"
    )
    assert answer.exit_code == 1
    assert "stage llir (no child; the compiler itself, spinning)" in answer.words
    assert "may just be slow" in answer.words


@needs_triton
def test_too_little_memory_is_said() -> None:
    answer = inductoscope("kernel", SMALL, "--memory", "0.1", "--quiet")
    assert answer.exit_code == 3
    assert "--memory" in answer.words


@needs_triton
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_running_when_the_tool_is_ended(
    number: signal.Signals, tmp_path: Path
) -> None:
    tool = subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(SMALL), "--quiet"],
        env={**os.environ, "TRITON_PTXAS_PATH": str(stand_in(tmp_path)), "TMPDIR": str(tmp_path)},
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    assert wait_until((tmp_path / "asked").exists)
    tool.send_signal(number)
    tool.wait(timeout=30)
    assert wait_until(lambda: processes_about(str(tmp_path)) == [])
    if number != signal.SIGKILL:
        assert list(tmp_path.glob("inductoscope-kernel-*")) == []
