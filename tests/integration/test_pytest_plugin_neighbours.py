"""`pytest --inductoscope` beside what else ends, repeats or spreads tests."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from inductoscope.processes.ending import processes_below
from support.programs import Workplace
from support.running import is_running
from support.suites import BARE, PYTEST, recordings_left, run_suite, written
from support.waiting import wait_until

pytestmark = pytest.mark.spread

# Of everything that compiles, tanh is wrong and sqrt kills its process.
BROKEN_COMPILER = """
import torch
import torch._inductor.codegen.cpp as m

m.CppOverrides.tanh = staticmethod(lambda x: f"std::tanh({x}) + 1")
m.CppVecOverrides.tanh = staticmethod(lambda x: f"{x}.tanh() + decltype({x})(1)")
m.CppOverrides.sqrt = staticmethod(lambda x: "(__builtin_trap(), 0.0f)")
m.CppVecOverrides.sqrt = staticmethod(lambda x: f"(__builtin_trap(), {x})")
"""

DEADLY_SUITE = """
import torch

def test_kills_its_process():
    torch.compile(torch.sqrt)(torch.ones(8))

def test_is_healthy():
    assert torch.compile(torch.square)(torch.ones(8)).shape == (8,)
"""


def test_a_kernel_that_kills_a_worker_of_xdist(workplace: Workplace) -> None:
    workplace.write("conftest.py", BROKEN_COMPILER)
    workplace.write("test_model.py", DEADLY_SUITE)
    words = ("-p", "xdist", "-n", "2", "--inductoscope", "--inductoscope-json=out.json")
    done = run_suite(workplace, *words)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "The process died in this test. If compiled code is to blame, this finds" in done.stdout
    command = "inductoscope doctor -m pytest test_model.py::test_kills_its_process"
    assert command in done.stdout
    # What the other worker checked is not lost, and nobody claims to know what the dead one did.
    (healthy,) = written(workplace)["tests"]
    assert [call["verdict"] for call in healthy["calls"]] == ["right"]
    assert healthy["findings"] == []
    assert recordings_left(workplace) == []


# --- pytest-timeout and pytest-rerunfailures ------------------------------------------------------

SUITE_RUN_AGAIN = """
import time
import pytest
import torch

X = torch.ones(8)
tries, calls_to_slow_down = [], []

@torch.library.custom_op("suite::slow_later", mutates_args=())
def slow_later(x: torch.Tensor) -> torch.Tensor:
    if calls_to_slow_down:
        time.sleep(calls_to_slow_down.pop(0))
    return x * 2

slow_later.register_fake(torch.empty_like)

@pytest.fixture
def slow_to_end():
    yield
    time.sleep(0.2)

@torch.compile
def slow(x):
    return slow_later(x) + 1

def test_compiles_what_is_called_later():
    slow(X)

def test_is_wrong():
    torch.compile(torch.tanh)(X)

def test_passes_in_the_end():
    tries.append(1)
    assert torch.compile(lambda x: x * len(tries))(X).sum() == 16

@pytest.mark.timeout(3, method="thread")
def test_takes_long_to_check():
    calls_to_slow_down.extend([0, 2, 2])
    slow(X)

@pytest.mark.flaky(reruns=0)  # A limit of pytest-timeout holds for the first time only.
@pytest.mark.timeout(1)
def test_takes_too_long(slow_to_end):
    time.sleep(30)
"""


def test_tests_that_are_run_again_or_take_too_long(workplace: Workplace) -> None:
    pytest.importorskip("pytest_timeout")
    pytest.importorskip("pytest_rerunfailures")
    workplace.write("conftest.py", BROKEN_COMPILER)
    workplace.write("test_model.py", SUITE_RUN_AGAIN)
    done = run_suite(
        workplace,
        *("-p", "pytest_timeout", "-p", "pytest_rerunfailures", "--reruns", "1"),
        *("--inductoscope", "--inductoscope-json=out.json", "--junitxml=junit.xml"),
    )
    # A limit that ends the process does not count the time that the check takes, and one that ran
    # out does so once: fixtures are torn down in peace.
    assert "2 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "Timeout (>1.0s)" in done.stdout
    assert "2 rerun" in done.stdout
    assert "error" not in done.stdout.splitlines()[-1]

    seen = written(workplace)
    assert seen["totals"]["findings"] == 1
    found = {test["test"].partition("::")[2]: test for test in seen["tests"]}
    assert len(found) == len(seen["tests"])
    (wrong,) = found["test_is_wrong"]["findings"]
    # Known from the first time, when the graph was compiled.
    assert (wrong["verdict"], wrong["op"]) == ("wrong-result", "aten.tanh.default")
    # Where the variable CI is set, pytest's own short summary repeats a failure's whole text.
    said, _, _ = done.stdout.partition("= short test summary info =")
    assert said.count("For the cause, a reproducer and a workaround:") == 1
    assert said.count("wrong-result in test_model.py::test_is_wrong") == 1
    junit = (workplace.folder / "junit.xml").read_text()
    assert junit.count('<property name="inductoscope"') == 2  # One for each time it ran.
    (folder,) = recordings_left(workplace)
    assert [str(path) for path in folder.iterdir()] == [wrong["recording"]]


# --- Ctrl-C ---------------------------------------------------------------------------------------


def test_ctrl_c_while_the_doctor_runs_leaves_nothing_behind(workplace: Workplace) -> None:
    workplace.write("conftest.py", BROKEN_COMPILER)
    text = "import torch\ndef test_is_wrong(): torch.compile(torch.tanh)(torch.ones(8))\n"
    workplace.write("test_model.py", text)
    temporary = workplace.folder / "temporary"
    temporary.mkdir()
    suite = subprocess.Popen(
        [*PYTEST, "--inductoscope", "--inductoscope-doctor"],
        cwd=workplace.folder,
        env=workplace.environment(TMPDIR=str(temporary), **BARE),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert wait_until(lambda: bool(list(temporary.glob("inductoscope-pytest-*/doctor-*/*"))), 120)
    assert wait_until(lambda: len(processes_below(suite.pid)) > 1)
    children = list(processes_below(suite.pid))
    cached = sorted(workplace.cache.rglob("*"))
    os.kill(suite.pid, signal.SIGINT)
    said, _ = suite.communicate(timeout=60)
    assert suite.returncode == pytest.ExitCode.INTERRUPTED, said.decode()
    assert wait_until(lambda: not any(map(is_running, children)), 10)
    assert recordings_left(workplace) == []
    assert sorted(workplace.cache.rglob("*")) == cached
