"""Where a program stands that does not get on: the function that loops, from looks at its stack."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from inductoscope.doctor.last_position import compiler_functions, looping_function
from inductoscope.processes.stack_signal import STACK_SIGNAL

# A scheduler that goes round for ever, in a file that looks like the compiler's.
SCHEDULER = """
import time

def score(pair):
    time.sleep(0.011)

def check(pair):
    time.sleep(0.007)

def rest():
    time.sleep(0.06)

def fuse_once():
    for pair in range(3):
        score(pair)
        check(pair)

def fuse():
    while True:
        fuse_once()
        rest()

def compile_graph():
    fuse()
"""

PROGRAM = """
import faulthandler, sys
sys.path.insert(0, {folder!r})
faulthandler.register({signal}, file=open({stacks!r}, "w"), all_threads=True)
import scheduler
print("ready", flush=True)
scheduler.compile_graph()
"""


LOOKS = 16


def wait_for(written: Path, *, looks: int) -> None:
    """Until the program has answered."""
    deadline = time.monotonic() + 20
    while written.read_text().count("most recent call first") < looks:
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The positions that a looping program writes when it is asked many times where it is."""
    place = tmp_path_factory.mktemp("looping")
    folder = place / "torch" / "_inductor"
    folder.mkdir(parents=True)
    (folder / "scheduler.py").write_text(SCHEDULER)
    written = place / "stacks.txt"
    source = PROGRAM.format(folder=str(folder), signal=int(STACK_SIGNAL), stacks=str(written))
    with subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        for look in range(LOOKS):
            time.sleep(0.02 + look / 700)
            program.send_signal(STACK_SIGNAL)
            wait_for(written, looks=look + 1)
        program.send_signal(signal.SIGKILL)
    return Path(written).read_text()


def test_the_loop_is_on_every_stack_and_what_it_calls_is_not(stacks: str) -> None:
    assert looping_function(stacks) == "fuse"


def test_a_function_that_is_known_to_return_is_not_the_one_that_loops(stacks: str) -> None:
    assert looping_function(stacks, returns=("fuse",)) == "compile_graph"


def test_one_look_tells_nothing(stacks: str) -> None:
    one, _, _ = stacks.partition("\n\n")
    assert looping_function(one[: one.find("Current", 10)]) == ""


# --- the compiler's functions on a stack that was written down ------------------------------------

SITE = "/home/me/env/lib/python3.11/site-packages"
STACKS = f"""\
Timeout (0:00:20)!
Thread 0x00007f0000000001 (most recent call first):
  File "{SITE}/torch/_inductor/scheduler.py", line 10 in earlier
  File "/home/me/model.py", line 3 in <module>
Timeout (0:00:20)!
Thread 0x00007f0000000001 (most recent call first):
  File "{SITE}/torch/_inductor/pattern_matcher.py", line 20 in <lambda>
  File "{SITE}/torch/_inductor/fx_passes/joint_graph.py", line 30 in joint_graph_passes
  File "{SITE}/torch/fx/graph.py", line 5 in lint
  File "{SITE}/torch/_dynamo/convert_frame.py", line 40 in _compile
  File "/home/me/model.py", line 3 in <module>
"""


def test_the_compilers_functions_are_taken_from_the_last_stack() -> None:
    assert compiler_functions(STACKS) == [
        "<lambda> (torch/_inductor/pattern_matcher.py:20)",
        "joint_graph_passes (torch/_inductor/fx_passes/joint_graph.py:30)",
        "_compile (torch/_dynamo/convert_frame.py:40)",
    ]


def test_the_stack_of_a_crash_is_the_last_one() -> None:
    crash = (
        "Fatal Python error: Segmentation fault\n\n"
        "Current thread 0x00007f0000000001 (most recent call first):\n"
        f'  File "{SITE}/torch/_inductor/codecache.py", line 7 in load\n\n'
        "Extension modules: numpy._core (total: 1)\n"
    )
    assert compiler_functions(STACKS + crash) == ["load (torch/_inductor/codecache.py:7)"]


def test_a_stack_outside_the_compiler_names_nothing() -> None:
    assert compiler_functions("") == []
    assert compiler_functions('Timeout!\n  File "/home/me/model.py", line 3 in <module>\n') == []


def test_a_thread_that_waits_is_not_the_one_that_is_stuck() -> None:
    """Python writes the newest thread first and the main thread last."""
    waiting = (
        "Timeout (0:00:20)!\n"
        "Thread 0x00007f0000000002 (most recent call first):\n"
        f'  File "{SITE}/torch/_inductor/compile_worker/subproc_pool.py", line 9 in _recv_msg\n'
        f'  File "{SITE}/torch/_inductor/compile_worker/subproc_pool.py", line 8 in _read_thread\n'
        '  File "/usr/lib/python3.11/threading.py", line 1 in run\n\n'
    )
    stuck = STACKS.rpartition("Timeout (0:00:20)!\n")[2]
    assert compiler_functions(waiting + stuck)[0].startswith("<lambda>")
