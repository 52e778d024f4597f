"""Programs that stall for real, told apart by `run --stall` and by `attach`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inductoscope.hangs.watch.attaching import attach
from inductoscope.hangs.watch.live import kept_stalls
from support.programs import REAL_COMPILER, TOOL

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

STALLS = Path(__file__).parents[1] / "support" / "stalls"
LIMIT = 4.0
PATIENCE = 120.0

# What stalls.py can do, the kind that it is, and a name that has to be said.
INSIDE = {
    "endless_lowering": ("lowering", "never_ends"),
    "endless_pass": ("fx-pass", "stalls.py"),
    "endless_fusion": ("fusion", "never_ends"),
    "endless_tracing": ("dynamo", ""),
    "endless_backend": ("backend", "never_ends"),
    "endless_decomposition": ("aot", "never_ends"),
    "endless_kernel": ("kernel", ".py:"),
    "user_code": ("user-code", "user_code"),
    "worker_stopped": ("worker-stopped", "SIGSTOP"),
    "worker_died": ("worker-died", "waits"),
    "pool_deadlock": ("pool-deadlock", "sleep"),
}
# Which of the two has the lock is chance.
TWINS = ("compiler_sleeps", "same_compiler_sleeps")
SLOW = "slow_compiles"


def say(text: str) -> None:
    """No one listens."""


def private(folder: Path) -> dict[str, str]:
    """A cache of one's own, headers included, in which no ISA has to be tried out."""
    (folder / "tmp").mkdir(exist_ok=True)
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"),
        "TMPDIR": str(folder / "tmp"),
        "TORCHINDUCTOR_VEC_ISA_OK": "1",
    }


class Program:
    """A program under `inductoscope run`, in a session of its own: all of it can be ended."""

    def __init__(
        self, folder: Path, words: list[str], *, options: tuple[str, ...] = (), **more: str
    ):
        folder.mkdir(exist_ok=True)
        self.recording = folder / "recording"
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "INDUCT"))}
        environment.update(
            COLUMNS="80",
            **REAL_COMPILER,
            **private(folder),
            **more,
        )
        limit = ("--stall", str(LIMIT))
        self.child = subprocess.Popen(
            [*TOOL, "run", "--output", str(self.recording), *limit, *options, *words],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=(folder / "stdout").open("w"),
            stderr=(folder / "stderr").open("w"),
            start_new_session=True,
        )
        self._folder = folder

    @property
    def stdout(self) -> str:
        return (self._folder / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self._folder / "stderr").read_text()

    @property
    def stalls(self) -> list[dict[str, Any]]:
        return kept_stalls(self.recording)

    def wait_for(self, condition: Callable[[], Any]) -> Any:
        until = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < until, self.stdout + self.stderr
            time.sleep(0.2)
        return found

    def stall(self, kind: str) -> dict[str, Any]:
        """The first stall of a kind, waited for."""
        found: list[dict[str, Any]] = self.wait_for(
            lambda: [s for s in self.stalls if s["judgement"]["kind"] == kind]
        )
        return found[0]

    def end(self) -> None:
        """End the program and workers of torch that have lost their parent."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    """Starts programs, and ends them with all that they started."""
    started: list[Program] = []

    def begin(*words: str, name: str = "one", **more: Any) -> Program:
        started.append(Program(tmp_path / name, [str(STALLS / words[0]), *words[1:]], **more))
        return started[-1]

    yield begin
    for program in started:
        program.end()


# --- inside of the compiler -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """One program with a child for each stall."""
    names = (*INSIDE, *TWINS, SLOW)
    program = Program(tmp_path_factory.mktemp("endless"), [str(STALLS / "stalls.py"), *names])
    program.wait_for(lambda: len(program.stdout.splitlines()) == len(names))
    yield program
    program.end()


def pid_of(program: Program, name: str) -> int:
    return next(
        int(line.split()[0]) for line in program.stdout.splitlines() if line.split()[1] == name
    )


@pytest.mark.parametrize("name", INSIDE)
def test_run_tells_what_it_stands_at(endless: Program, name: str) -> None:
    pid, (kind, said) = pid_of(endless, name), INSIDE[name]

    def wanted() -> list[dict[str, Any]]:
        mine = [stall for stall in endless.stalls if stall["pid"] == pid]
        return [stall for stall in mine if stall["judgement"]["kind"] == kind]

    stall = endless.wait_for(wanted)[-1]
    assert said in stall["judgement"]["culprit"] + stall["judgement"]["title"]
    assert stall["source"].startswith(str(STALLS / "stalls.py")), stall["source"]


@pytest.mark.parametrize("name", INSIDE)
def test_attach_tells_the_same(endless: Program, name: str) -> None:
    pid, (kind, _) = pid_of(endless, name), INSIDE[name]

    def judged() -> bool:
        attached = attach(pid, seconds=0.5, say=say)
        return attached.stall.judgement.kind == kind and not attached.moves

    assert endless.wait_for(judged)


def test_the_launcher_of_processes_is_not_blamed(endless: Program) -> None:
    ranks = {pid_of(endless, name) for name in (*INSIDE, *TWINS, SLOW)}
    assert {stall["pid"] for stall in endless.stalls} <= ranks


# --- compilers and locks --------------------------------------------------------------------------


def test_one_has_a_compiler_that_sleeps_and_the_other_waits_for_its_lock(endless: Program) -> None:
    """Two processes compile the same thing: one has the lock and a compiler that hangs."""
    pids = {pid_of(endless, name) for name in TWINS}
    kinds = endless.wait_for(lambda: two_kinds(endless, pids, "cpp-compiler", "file-lock"))
    compiler, lock = kinds["cpp-compiler"], kinds["file-lock"]
    assert "is idle" in compiler["judgement"]["title"]
    assert compiler["kernel"].endswith((".cpp", ".hpp"))
    assert f"pid {compiler['pid']}" in lock["judgement"]["title"]

    holder, waiter = (attach(pid, seconds=0.5, say=say) for pid in (compiler["pid"], lock["pid"]))
    assert holder.stall.judgement.kind == "cpp-compiler"
    assert waiter.stall.judgement.kind == "file-lock"
    assert f"pid {compiler['pid']}" in waiter.stall.judgement.title


def two_kinds(program: Program, pids: set[int], *kinds: str) -> dict[str, dict[str, Any]]:
    """The stalls of some processes by kind, once all kinds are there."""
    found = {s["judgement"]["kind"]: s for s in program.stalls if s["pid"] in pids}
    return found if set(kinds) <= found.keys() else {}


def test_a_compile_that_is_only_slow_moves(endless: Program) -> None:
    pid = pid_of(endless, "slow_compiles")
    endless.wait_for(lambda: _is_compiling(endless, pid))
    attached = attach(pid, seconds=4.0, say=say)
    assert attached.moves
    assert not [s for s in endless.stalls if s["pid"] == pid and s["stage"] == "cpp-compile"]


def _is_compiling(program: Program, pid: int) -> bool:
    streams = (program.recording / "streams").glob(f"{pid}-*.jsonl")
    return any('"kind":"native-start"' in path.read_text() for path in streams)


def test_kill_stuck_ends_the_compiler_and_not_the_program(start: Callable[..., Program]) -> None:
    cxx = str(STALLS / "compilers" / "spinning")
    program = start("compile_small.py", options=("--kill-stuck",), CXX=cxx)
    program.child.wait(PATIENCE)
    (stall,) = (s for s in program.stalls if s["judgement"]["kind"] == "cpp-compiler")
    assert stall["judgement"]["pid"] in stall["ended"]["pids"]
    assert stall["pid"] not in stall["ended"]["pids"]
    assert stall["verdict_after"] < 5.0
    assert "spinning" in program.stderr
    assert "CppCompileError" in program.stderr  # This kernel had no other choice.


# A kernel of 256 threads, that is a choice with num_warps=8, is never assembled.
PTXAS = """#!/bin/sh
for word in "$@"; do
  if [ -f "$word" ] && grep -q "ntid 256" "$word"; then sleep 1000; fi
done
exec {real} "$@"
"""


def test_kill_stuck_ends_ptxas_and_the_run_goes_on_with_other_choices(
    start: Callable[..., Program], tmp_path: Path
) -> None:
    triton = pytest.importorskip("triton")
    script = tmp_path / "ptxas"
    script.write_text(PTXAS.format(real=Path(triton.__file__).parent / "backends/nvidia/bin/ptxas"))
    script.chmod(0o755)
    program = start("product.py", options=("--kill-stuck",), TRITON_PTXAS_PATH=str(script))
    program.child.wait(2 * PATIENCE)
    stuck = [stall for stall in program.stalls if stall["judgement"]["kind"] == "ptxas"]
    assert stuck, program.stderr
    assert all(stall["ended"]["pids"] and stall["moved"] for stall in stuck)
    assert program.stdout.endswith("done\n")  # Behind what Triton prints of ptxas.
    assert program.child.returncode == 0


# --- what is written ------------------------------------------------------------------------------


def test_a_stall_is_json(endless: Program) -> None:
    endless.wait_for(lambda: endless.stalls)
    assert json.dumps(endless.stalls[0])
    assert "inductoscope: stall 1: no progress" in endless.stderr
    assert all(len(line) <= 80 for line in endless.stderr.splitlines() if line.startswith("  "))
