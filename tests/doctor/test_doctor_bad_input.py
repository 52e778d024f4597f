"""Programs that make it hard for the doctor: what the user types, and what is true about it.

None of these may end in a made-up culprit, a hang or a traceback of the tool. The faulty part is
an open bug of torch 2.13 (`GAPS`), so nothing is planted unless a test says so; products of
matrices need no C++ compiler, which keeps the programs in which nothing is wrong short.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess

import pytest

from support.programs import (
    ONE_PROOF,
    REAL_COMPILER,
    SMALL_MODEL,
    TINY_MODEL,
    TOOL,
    Diagnosis,
    Workplace,
    with_small_disk,
)

pytestmark = pytest.mark.spread

NO_WORKAROUND = ("--no-workaround", *ONE_PROOF)

# pytorch#184893: the indices are wrong, unless all values of a column are the same.
GAPS = """
def gaps(signal):
    return (signal > 0.2).min(dim=0).indices
"""


def assert_nobody_is_blamed(found: Diagnosis) -> None:
    assert not any(found.verdict["culprit"].values())
    assert found.verdict["repro"] is None


# --- what the program needs -----------------------------------------------------------------------


TAKES_ARGUMENTS = """
parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True)
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ("n = int(input())", "EOFError"),
        (TAKES_ARGUMENTS, "the following arguments are required: --data"),
    ],
    ids=["standard input", "arguments"],
)
def test_a_program_that_was_not_given_what_it_needs(
    workplace: Workplace, needs: str, said: str
) -> None:
    workplace.write("needs.py", f"import argparse, torch\n{needs}\n")
    found = workplace.doctor("needs.py")
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-a-bug", "user")
    assert said in found.verdict["summary"]
    assert_nobody_is_blamed(found)


def test_an_open_pipe_that_nobody_writes_to_is_not_waited_for(workplace: Workplace) -> None:
    """As under ssh, cron or another program: the script runs by itself, so it does here."""
    workplace.write("plain.py", "print('done')\n")
    reading, writing = os.pipe()
    try:
        done = subprocess.run(
            [*TOOL, "doctor", "--json", "-", "--output", "out", "plain.py"],
            cwd=workplace.folder,
            env=workplace.environment(),
            stdin=reading,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert json.loads(done.stdout)["verdict"] == "not-checked", "it compiles nothing"


TAGGED = """
class Tagged(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    def __tensor_flatten__(self):
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Tagged(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        args, kwargs = tree_map_only(Tagged, lambda t: t.inner, (args, kwargs or {}))
        return tree_map_only(torch.Tensor, Tagged, func(*args, **kwargs))
"""


def test_a_program_that_compiles_many_graphs_and_one_for_tensors_of_its_own_is_clean(
    workplace: Workplace,
) -> None:
    workplace.write(
        "many.py",
        f"import torch\nfrom torch.utils._pytree import tree_map_only\n{TAGGED}\n"
        "x = torch.eye(4)\n"
        "for n in range(40):\n"
        "    space = {}\n"
        "    exec(f'def f(x):\\n    return x @ x, {n}', space)\n"
        "    assert torch.compile(space['f'])(x)[1] == n\n"
        "x, f = Tagged(torch.randn(4, 4)), lambda x: x @ x\n"
        "assert torch.allclose(torch.compile(f)(x).inner, f(x).inner)\n",
    )
    found = workplace.doctor("many.py")
    assert (found.exit_code, found.verdict["verdict"]) == (0, "clean")
    assert "41 calls of 41 compiled graphs" in found.verdict["summary"]


# --- what the machine lacks -----------------------------------------------------------------------


def test_without_a_cpp_compiler_the_machine_is_to_blame(workplace: Workplace) -> None:
    workplace.write("model.py", SMALL_MODEL)
    found = workplace.doctor("model.py", options=NO_WORKAROUND, CXX="/no/such/compiler")
    verdict = found.verdict
    assert verdict["verdict"] == "compile-error"
    assert verdict["culprit"]["op"] is None
    assert "/no/such/compiler" in verdict["summary"]
    assert "CXX" in found.names  # What to do about it.


def examine(
    workplace: Workplace, before: tuple[str, ...], output: str, **more: str
) -> subprocess.CompletedProcess[str]:
    workplace.write("model.py", SMALL_MODEL)
    command = ["doctor", "--json", "-", "--output", output, *NO_WORKAROUND, "model.py"]
    return workplace.call([*before, *TOOL, *command], **REAL_COMPILER, **more)


@pytest.mark.parametrize("size", ["64k", "2m"], ids=["for the recording", "for compiled code"])
def test_a_disk_that_is_too_small_for_the_examination(workplace: Workplace, size: str) -> None:
    before = with_small_disk(workplace.folder / "disk", size)
    done = examine(workplace, before, "disk/out")
    assert done.returncode == 3
    assert "Choose another place with --output." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_for_temporary_files(workplace: Workplace) -> None:
    """The C++ compiler cannot write there, with or without the tool; no operation is to blame."""
    disk = workplace.folder / "disk"
    done = examine(workplace, with_small_disk(disk), "out", TMPDIR=str(disk))
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (1, "compile-error")
    assert os.strerror(errno.ENOSPC) in json.dumps(verdict)
    assert (verdict["culprit"]["op"], verdict["repro"]) == (None, None)


# --- programs that are not the same every time ----------------------------------------------------

FLAKY = """
import pathlib, torch
count = pathlib.Path("count")
number = int(count.read_text()) if count.exists() else 0
count.write_text(str(number + 1))
print(torch.compile(lambda x: x @ x)(torch.eye(3)))
if number % 2 == 0:
    raise ConnectionError("the server did not answer")
"""


def test_a_program_that_fails_every_other_time_blames_nobody(workplace: Workplace) -> None:
    workplace.write("flaky.py", FLAKY)
    found = workplace.doctor("flaky.py", options=NO_WORKAROUND)
    assert found.verdict["verdict"] == "unknown"
    assert "the server did not answer" in found.names
    assert_nobody_is_blamed(found)


# Asks whether the doctor limits its threads, as it does in every run under the tool.
WATCHED = "'OMP_THREAD_LIMIT' in os.environ"


@pytest.mark.parametrize(
    ("exit_code", "verdict", "said"),
    [
        (f"'odd' if {WATCHED} else 0", "unknown", "only under inductoscope"),
        (f"0 if {WATCHED} else 'odd'", "not-a-bug", "The program fails without torch.compile too"),
    ],
    ids=["fails under the tool only", "stops failing under the tool"],
)
def test_a_program_that_is_another_one_under_the_tool(
    workplace: Workplace, exit_code: str, verdict: str, said: str
) -> None:
    workplace.write(
        "shy.py",
        "import os, sys, torch\n"
        "torch.compile(lambda x: x @ x)(torch.eye(3))\n"
        f"sys.exit({exit_code})\n",
    )
    found = workplace.doctor("shy.py")
    assert found.verdict["verdict"] == verdict
    assert said in found.verdict["summary"]
    assert "odd" in found.names
    assert_nobody_is_blamed(found)


# --- a failure that is not at the first call, or not in the first process -------------------------


@pytest.mark.usefixtures("bugs_of_torch")
def test_a_failure_of_the_third_call_in_one_rank(workplace: Workplace) -> None:
    """Two ranks, started as torchrun does. The data of the third step is what it takes."""
    workplace.write(
        "rank.py",
        f"import sys, torch, torch.distributed as dist\n{GAPS}\n"
        "dist.init_process_group('gloo')\n"
        "torch.manual_seed(0)\n"
        "last = torch.randn(12, 32) if dist.get_rank() == 1 else torch.ones(12, 32)\n"
        "compiled, wrong = torch.compile(gaps), torch.zeros(1)\n"
        "for batch in (torch.ones(12, 32), torch.zeros(12, 32), last):\n"
        "    wrong += not torch.equal(compiled(batch), gaps(batch))\n"
        "dist.all_reduce(wrong)\n"
        "sys.exit(int(wrong))\n",
    )
    workplace.write(
        "launch.py",
        "import os, socket, subprocess, sys\n"
        "with socket.socket() as free:\n"
        "    free.bind(('127.0.0.1', 0))\n"
        "    port = free.getsockname()[1]\n"
        "os.environ.update(WORLD_SIZE='2', MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port))\n"
        "start = lambda rank: subprocess.Popen(\n"
        "    [sys.executable, 'rank.py'], env={**os.environ, 'RANK': str(rank)})\n"
        "sys.exit(max(rank.wait() for rank in [start(0), start(1)]))\n",
    )
    found = workplace.doctor("launch.py", options=NO_WORKAROUND)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "codegen")
    assert found.verdict["culprit"]["op"] == "aten.min.dim"
    assert found.verdict["culprit"]["source"].startswith("rank.py:")
    assert found.verdict["repro"]["verified"]
    assert "rank 1" in found.names


def test_a_kernel_that_kills_a_child_of_the_program(workplace: Workplace) -> None:
    """Planted: tanh ends the process. The program itself ends with an exit code of its own."""
    workplace.write("model.py", TINY_MODEL)
    workplace.write(
        "parent.py",
        "import subprocess, sys\n"
        "done = subprocess.run([sys.executable, 'model.py'])\n"
        "sys.exit('the child failed' if done.returncode else 0)\n",
    )
    wrong = """
m.CppOverrides.tanh = staticmethod(lambda x: "(__builtin_trap(), 0.0f)")
m.CppVecOverrides.tanh = staticmethod(lambda x: f"(__builtin_trap(), {x})")
"""
    environment = workplace.plant("torch._inductor.codegen.cpp", wrong)
    found = workplace.doctor("parent.py", options=NO_WORKAROUND, **environment)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("crash", "runtime")
    assert found.verdict["culprit"]["op"].startswith("aten.tanh")
    assert found.verdict["culprit"]["source"] == "model.py:5"
    assert found.verdict["culprit"]["kernel"].startswith("cpp_fused_")
    assert found.verdict["repro"]["verified"]


# --- arguments that cannot be copied, operators and tensors of the program's own ------------------

SCALE = """
@torch.library.custom_op("mine::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by

@scale.register_fake
def _(x, by):
    return torch.empty_like(x)
"""


def test_an_operator_that_does_not_do_what_it_declares(workplace: Workplace) -> None:
    # A larger type than declared: with a smaller one, the compiled code would write past the end.
    workplace.write(
        "change.py",
        "import sys, torch\n"
        "@torch.library.custom_op('mine::change', mutates_args=())\n"
        "def change(x: torch.Tensor) -> torch.Tensor:\n    return x.double()\n"
        "@change.register_fake\ndef _(x):\n    return torch.empty_like(x)\n"
        "def f(x):\n"
        "    y = x + 1\n"
        "    return change(y) + y\n"
        "x = torch.arange(8.0)\n"
        "want, got = f(x), torch.compile(f)(x)\n"
        "sys.exit(0 if torch.equal(want, got) else 1)\n",
    )
    found = workplace.doctor("change.py", options=NO_WORKAROUND)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-a-bug", "user")
    assert found.verdict["culprit"]["op"] == "mine.change.default"
    assert "Dtypes torch.float64 and torch.float32" in found.names


def test_an_operator_without_a_fake_implementation(workplace: Workplace) -> None:
    workplace.write(
        "bare.py",
        f"import torch\n{SCALE.partition('@scale.register_fake')[0]}\n"
        "def f(x):\n"
        "    return scale(x @ x, 2.0)\n"
        "torch.compile(f)(torch.eye(3))\n",
    )
    found = workplace.doctor("bare.py", options=NO_WORKAROUND)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("not-inductor", "dynamo")
    assert "register_fake" in found.verdict["summary"]
    assert found.verdict["culprit"]["source"].endswith("bare.py:9")


@pytest.mark.usefixtures("bugs_of_torch")
def test_unpicklable_arguments_and_an_operator_of_ones_own_beside_a_bug(
    workplace: Workplace,
) -> None:
    workplace.write(
        "report.py",
        f"import sys, threading, torch\n{SCALE}{GAPS}\n"
        "def report(x, level, log, lock, names):\n"
        "    return gaps(scale(x, level(0.5))), log, lock, names\n"
        "torch.manual_seed(0)\n"
        "x = torch.randn(12, 32)\n"
        "things = lambda v: v * 2, open('log.txt', 'w'), threading.Lock(), (n for n in 'ab')\n"
        "want, got = report(x, *things), torch.compile(report)(x, *things)\n"
        "sys.exit(0 if torch.equal(want[0], got[0]) else 1)\n",
    )
    found = workplace.doctor("report.py", options=NO_WORKAROUND)
    assert (found.exit_code, found.verdict["verdict"]) == (1, "wrong-result")
    assert found.verdict["culprit"]["op"] == "aten.min.dim"
    assert found.verdict["repro"]["verified"]


@pytest.mark.usefixtures("bugs_of_torch")
def test_tensors_of_a_class_of_ones_own_beside_a_bug(workplace: Workplace) -> None:
    workplace.write(
        "tagged.py",
        f"import sys, torch\nfrom torch.utils._pytree import tree_map_only\n{TAGGED}{GAPS}\n"
        "torch.manual_seed(0)\n"
        "x = Tagged(torch.randn(12, 32))\n"
        "want, got = gaps(x), torch.compile(gaps)(x)\n"
        "sys.exit(0 if torch.equal(want.inner, got.inner) else 1)\n",
    )
    found = workplace.doctor("tagged.py", options=NO_WORKAROUND)
    assert (found.verdict["verdict"], found.verdict["stage"]) == ("wrong-result", "codegen")
    assert found.verdict["culprit"]["op"] == "aten.min.dim"
    assert found.verdict["culprit"]["source"].startswith("tagged.py:")
