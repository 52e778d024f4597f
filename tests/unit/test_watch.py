"""Readings of processes, stacks and locks, and the kind of stall that follows."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from inductoscope.analysis.rules import diagnose
from inductoscope.analysis.rules.endings import stall
from inductoscope.hangs.watch.attaching import end_stuck
from inductoscope.hangs.watch.kinds import KINDS, classify
from inductoscope.hangs.watch.scene import Scene, StallDiagnosis, mark
from inductoscope.hangs.watch.stall import FollowedStream, patience_of_doctor, patience_of_run
from inductoscope.model.fold import load
from inductoscope.model.process_position import ProcessPosition
from inductoscope.processes.locks import FileLock, count_tries, held_locks
from inductoscope.processes.stacks import StackFrame, Stacks, ThreadStack, parse_dump, read_stacks
from inductoscope.processes.status import ProcessStatus
from inductoscope.processes.tree import Activity, ProcessSample, Tree, activity, sample_tree
from inductoscope.recording.events import Entry, GraphCall, StageStart
from inductoscope.recording.reader import StreamReader
from inductoscope.views.report.summary import summary_view
from support.examples import write_recording

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

WORKER = (
    "python",
    "/x/site-packages/torch/_inductor/compile_worker/__main__.py",
    "--kind=fork",
    "--parent=10",
)


def process(pid: int, *command: str, parent: int = 10, **more: Any) -> ProcessSample:
    name = os.path.basename(command[0]) if command else "python"
    status = ProcessStatus(pid, "S", parent, pid, 1, 0.0, 0, 0, 0.0)
    plain = ProcessSample(**vars(status), name=name, command=command or ("python",), age=30.0)
    return replace(plain, **more)


def stack(*calls: str, pid: int = 10) -> Stacks:
    """A stack from lines such as 'torch/_inductor/graph.py:run', outermost first."""
    frames = []
    for call in calls:
        file, _, function = call.rpartition(":")
        place = file if file.startswith("/") else f"/x/site-packages/{file}"
        frames.append(StackFrame(function, place, 7))
    return Stacks(pid, "py-spy", (ThreadStack("MainThread", tuple(reversed(frames))),))


DYNAMO = ("/home/me/train.py:main", "torch/_dynamo/convert_frame.py:_compile")
BACKEND = (*DYNAMO, "torch/_dynamo/output_graph.py:call_user_compiler")
AOT = (*BACKEND, "torch/_functorch/aot_autograd.py:aot_module_simplified")
INDUCTOR = (*AOT, "torch/_inductor/compile_fx.py:codegen_and_compile")
WAIT = (*INDUCTOR, "torch/_inductor/async_compile.py:_wait_futures")
GENERATED = "/tmp/torchinductor_me/ab/c" + "x" * 51 + ".py:call"
BENCHMARK = "torch/_inductor/runtime/benchmarking.py:benchmark"
LOCK = ("torch/_inductor/codecache.py:load_async", "filelock/_api.py:acquire")
POST_GRAD = "torch/_inductor/fx_passes/post_grad.py:post_grad_passes"
SCHEDULER = "torch/_inductor/scheduler.py"


def scene(*others: ProcessSample, calls: tuple[str, ...] = (), **more: Any) -> Scene:
    tree = Tree(1.0, (process(10, parent=1), *others))
    idle = Activity(2.0, 0.0, 0, 0, 0)
    found = Scene(
        tree=tree,
        activity={p.pid: idle for p in tree.processes},
        stacks={10: stack(*calls)} if calls else {},
    )
    return replace(found, **more)


PTXAS = process(11, "/triton/bin/ptxas", "-o", "k.cubin", "k.ptx")
SCENES = {
    "stopped": scene(calls=WAIT, tree=Tree(1.0, (process(10, state="T"),))),
    "worker-stopped": scene(process(11, *WORKER, state="T"), calls=WAIT),
    "file-lock": scene(calls=(*INDUCTOR, *LOCK), wanted_lock="/c/k.lock"),
    "ptxas": scene(PTXAS, calls=WAIT),
    "cpp-compiler": scene(process(11, "cc1plus", "k.cpp", "-o", "k.o"), calls=WAIT),
    "worker-died": scene(process(12, *WORKER, parent=1), calls=WAIT),
    "collective": scene(
        calls=("/home/me/train.py:main", "torch/distributed/distributed_c10d.py:all_reduce")
    ),
    "triton-compile": scene(calls=(*INDUCTOR, "triton/compiler/compiler.py:compile")),
    "benchmark": scene(
        calls=(*INDUCTOR, "torch/_inductor/select_algorithm.py:__call__", BENCHMARK)
    ),
    "workers": scene(process(11, *WORKER), calls=WAIT, activity={11: Activity(2.0, 0.9, 0, 0, 0)}),
    "pool-deadlock": scene(process(11, *WORKER), process(12, *WORKER, parent=11), calls=WAIT),
    "fusion": scene(calls=(*INDUCTOR, f"{SCHEDULER}:__init__", f"{SCHEDULER}:fuse_nodes_once")),
    "scheduler": scene(calls=(*INDUCTOR, f"{SCHEDULER}:_init")),
    "fx-pass": scene(calls=(*INDUCTOR, POST_GRAD, "/home/me/train.py:my_pass")),
    "lowering": scene(calls=(*INDUCTOR, "torch/_inductor/graph.py:run_node")),
    "inductor": scene(calls=(*INDUCTOR, "torch/_inductor/graph.py:codegen")),
    "kernel": scene(calls=("/home/me/train.py:main", GENERATED)),
    "backend": scene(calls=(*BACKEND, "/home/me/train.py:my_backend")),
    "aot": scene(calls=AOT),
    "dynamo": scene(calls=DYNAMO),
    "user-code": scene(calls=("/home/me/train.py:main",)),
    "unknown": scene(),
}


# --- kinds ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SCENES)
def test_every_kind_is_told_by_what_is_seen(kind: str) -> None:
    found = classify(SCENES[kind])
    assert found.kind == kind
    assert found.title
    assert found.evidence
    assert 10 not in found.can_end  # Never the user's own process.


def test_every_rule_has_a_scene_that_it_answers_first() -> None:
    first = [next(kind for kind in KINDS if kind.find(seen)) for seen in SCENES.values()]
    assert set(first) == set(KINDS)


def test_every_kind_is_named_in_the_table() -> None:
    for name, seen in SCENES.items():
        assert name in next(kind for kind in KINDS if kind.find(seen)).names


def test_functions_are_known_with_and_without_their_class() -> None:
    """py-spy says GraphLowering.run_node where the program itself says run_node."""
    calls = (*INDUCTOR, "torch/_inductor/graph.py:GraphLowering.run_node")
    assert classify(scene(calls=calls)).kind == "lowering"


def test_a_pass_is_named() -> None:
    assert "my_pass" in classify(SCENES["fx-pass"]).culprit


def test_a_stale_lock_is_one_that_no_process_has_open() -> None:
    found = classify(SCENES["file-lock"])
    assert "stale" in found.title
    assert found.confidence == "proven"
    assert "Delete /c/k.lock" in found.advice


def test_a_lock_that_another_program_waits_for_is_not_blamed() -> None:
    others = [FileLock("/c/k.lock", holder=77, waiters=(78,))]
    assert classify(replace(SCENES["user-code"], locks=others)).kind == "user-code"


def test_the_holder_of_a_lock_is_judged_by_its_compiler() -> None:
    held = [FileLock("/c/k.lock", holder=10)]
    compiling = replace(SCENES["cpp-compiler"], locks=held, wanted_lock="/c/k.lock")
    assert classify(compiling).kind == "cpp-compiler"


def test_a_compiler_whose_memory_changes_is_slow_and_not_ended() -> None:
    working = Activity(2.0, 0.98, 50 << 20, 9000, 3)
    found = classify(replace(SCENES["cpp-compiler"], activity={11: working}))
    assert found.moves
    assert found.can_end == ()


def test_what_may_be_ended_is_a_compiler_with_what_it_started() -> None:
    child = process(12, "sleep", "9", parent=11)
    assert classify(scene(PTXAS, child, calls=WAIT)).can_end == (12, 11)


def test_idle_workers_are_not_blamed_for_what_the_user_waits_for() -> None:
    futures = ("/home/me/train.py:main", "/usr/lib/python3.11/concurrent/futures/_base.py:result")
    assert classify(scene(process(11, *WORKER), calls=futures)).kind == "user-code"


def test_without_a_stack_the_recording_says_the_stage_less_surely() -> None:
    found = classify(scene(stages={10: StageStart(stage="lowering")}))
    assert (found.kind, found.confidence) == ("lowering", "likely")


def test_marks_differ_only_if_the_program_got_further() -> None:
    one, other = (*DYNAMO, "torch/_dynamo/symbolic_convert.py:step"), DYNAMO
    assert mark(stack(*one)) == mark(stack(*other))
    assert mark(stack(*INDUCTOR)) != mark(stack(*AOT))


# --- processes ------------------------------------------------------------------------------------


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sleep", "60"])
    yield child
    child.kill()
    child.wait()


def test_a_tree_says_who_works_and_who_sleeps(sleeper: subprocess.Popen[bytes]) -> None:
    before = sample_tree(os.getpid())
    used = time.process_time()
    while time.process_time() < used + 0.3:  # However long that takes on a busy machine.
        pass
    after = sample_tree(os.getpid())
    done = activity(before, after)
    assert done[os.getpid()].cpu * done[os.getpid()].seconds > 0.2
    assert done[sleeper.pid].is_asleep
    assert sleeper.pid in {p.pid for p in after.below(os.getpid())}


def test_a_stopped_process_and_a_dead_one_are_seen(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    found = sample_tree(os.getpid()).get(sleeper.pid)
    assert found is not None
    assert found.is_stopped
    sleeper.kill()
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)
    dead = sample_tree(os.getpid()).get(sleeper.pid)
    assert dead is not None
    assert not dead.is_alive


@pytest.mark.parametrize(
    ("command", "compiler"),
    [
        (("/usr/bin/g++-12", "x.cpp"), "C++ compiler"),
        (("/bin/sh", "/opt/wrapper", "k.cpp", "-o", "k.so"), "C++ compiler"),
        (("/opt/fake", "k.ptx", "-o", "k.cubin"), "ptxas"),
        (("/usr/bin/ld", "-o", "k.so"), "linker"),
        (("python", "setup.py", "x.cpp", "-o", "y"), ""),
        (("sleep", "5"), ""),
    ],
)
def test_compilers_are_known_by_name_or_by_what_they_are_given(
    command: tuple[str, ...], compiler: str
) -> None:
    assert process(5, *command).compiler == compiler


def test_a_process_that_is_gone_has_an_empty_tree() -> None:
    child = subprocess.Popen(["true"])
    child.wait()
    assert sample_tree(child.pid).root is None


# --- ending ---------------------------------------------------------------------------------------


def test_what_is_stuck_is_ended_even_if_it_is_stopped(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.send_signal(signal.SIGSTOP)
    stuck = StallDiagnosis("ptxas", "", "", "proven", (), "", can_end=(sleeper.pid,))
    assert end_stuck(stuck).pids == (sleeper.pid,)
    assert sleeper.wait() < 0


def test_nothing_is_ended_where_nothing_may_be() -> None:
    ended = end_stuck(StallDiagnosis("lowering", "", "", "proven", (), ""))
    assert ended.pids == ()
    assert "the program itself" in ended.problem


# --- stacks ---------------------------------------------------------------------------------------

DUMP = """\
Thread 0x00007f01 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait

Current thread 0x00007f02 (most recent call first):
  File "/home/me/train.py", line 3 in step
  File "/home/me/train.py", line 9 in <module>
"""


def test_a_dump_of_python_is_read_with_the_main_thread_first() -> None:
    main, other = parse_dump(DUMP)
    assert [frame.text for frame in main.frames] == [
        "step (/home/me/train.py:3)",
        "<module> (/home/me/train.py:9)",
    ]
    assert other.frames[0].function == "wait"


def test_what_is_no_dump_has_no_threads() -> None:
    assert parse_dump("\x00 File nonsense\n  File") == ()


def test_a_process_without_a_handler_is_never_signalled(sleeper: subprocess.Popen[bytes]) -> None:
    """The signal would end it."""
    stacks = read_stacks(sleeper.pid)
    assert stacks.source == "none"
    assert stacks.missing
    assert sleeper.poll() is None


ANSWERS = """
import sys, time, pathlib
sys.path.insert(0, sys.argv[1])
from inductoscope.processes.stack_signal import answer_with_stacks
answer_with_stacks(pathlib.Path(sys.argv[2]))
def waits_here():
    print("ready", flush=True)
    time.sleep(60)
waits_here()
"""


def test_a_process_under_run_writes_its_own_stacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import inductoscope

    monkeypatch.setattr("inductoscope.processes.stacks.spy", lambda: None)
    source = str(Path(inductoscope.__file__).parent.parent)
    child = subprocess.Popen(
        [sys.executable, "-c", ANSWERS, source, str(tmp_path)], stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()
        stacks = read_stacks(child.pid)
        assert stacks.source == "signal"
        assert stacks.threads[0].frames[0].function == "waits_here"
        assert child.poll() is None
    finally:
        child.kill()
        child.communicate()


# --- locks ----------------------------------------------------------------------------------------


def test_who_holds_a_lock_and_how_often_it_is_tried(tmp_path: Path) -> None:
    path = tmp_path / "k.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert [lock.holder for lock in held_locks() if lock.path == str(path)] == [os.getpid()]
        child = subprocess.Popen(["sh", "-c", f"while :; do : < {path}; sleep 0.02; done"])
        try:
            assert count_tries([str(path)], 0.5)[str(path)] > 2
        finally:
            child.kill()
            child.wait()


# --- streams and findings -------------------------------------------------------------------------


def test_a_stream_says_what_is_open(tmp_path: Path) -> None:
    path = tmp_path / "12-1.jsonl"
    events: list[dict[str, Any]] = [
        {"kind": "compile-start", "compile": "0/0", "file": "m.py", "line": 3},
        {"kind": "stage-start", "stage": "dynamo", "compile": "0/0"},
        {"kind": "stage-start", "stage": "cpp-compile", "compile": "0/0"},
        {"kind": "native-start", "tool": "c++", "source": "a.cpp"},
        {"kind": "native-start", "tool": "c++", "source": "b.cpp"},
        {"kind": "native", "tool": "c++", "source": "a.cpp"},
    ]
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + '{"kind": "sta')
    stream = FollowedStream(StreamReader(path))
    stream.catch_up()
    position = stream.position
    assert [entry.event.stage for entry in position.stages.all] == ["dynamo", "cpp-compile"]
    assert [entry.event.source for entry in position.natives.values()] == ["b.cpp"]
    assert position.functions[position.compile] == "m.py:3"
    assert stream.pid == 12


def position_in(stage: str) -> ProcessPosition:
    """A process in a stage of the compiler, or outside of it."""
    position = ProcessPosition()
    if stage:
        position.stages.enter(Entry("", 0, 0.0, StageStart(stage=stage)))
    return position


def test_a_limit_that_is_given_counts_for_every_stage() -> None:
    everywhere, by_stage = patience_of_run(3.0), patience_of_run(None)
    assert {everywhere.limit(position_in(stage)) for stage in ("lowering", "")} == {3.0}
    by_compiler = by_stage.limit(position_in("cpp-compile"))
    assert by_compiler is not None
    assert by_compiler > (by_stage.limit(position_in("lowering")) or 0.0)


def test_the_doctor_waits_for_eager_before_it_calls_a_kernel_stuck() -> None:
    patience = patience_of_doctor(60.0)
    call = GraphCall(compile="0/0", call=1)
    outside, called = ProcessPosition(), ProcessPosition(call=call)
    assert patience.limit(outside) is None
    assert patience.limit(called) == 300.0
    assert patience.limit(ProcessPosition(call=call, eager_seconds=0.1)) == 60.0
    assert patience.limit(ProcessPosition(call=call, eager_seconds=9.0)) == 180.0


def test_a_stall_that_moved_on_is_a_note(tmp_path: Path) -> None:
    judgement = {"title": "g++ is at work", "confidence": "proven", "evidence": ["seen"]}
    write_recording(tmp_path / "recording")
    for number, more in ((1, {}), (2, {"moved": {"after": 9.0}})):
        data = {"number": number, "seconds": 5.0, "judgement": judgement, **more}
        (tmp_path / "recording" / f"stall-{number}.json").write_text(json.dumps(data))
    (tmp_path / "recording" / "stall-3.json").write_text("[not a stall")
    findings = list(stall(load(tmp_path / "recording")))
    assert [finding.is_problem for finding in findings] == [True, False]


def test_a_stall_that_says_odd_things_is_still_one(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "recording")
    odd = {"number": [1], "seconds": 5.0, "compile": ["0/0"], "judgement": {"confidence": ["?"]}}
    (folder / "stall-1.json").write_text(json.dumps(odd))
    (finding,) = stall(load(folder))
    assert (finding.is_problem, finding.confidence) == (True, "unknown")


def test_a_stall_that_ctrl_c_ended_is_a_problem(tmp_path: Path) -> None:
    begun = {"kind": "compile-start", "compile": "0/0", "function": "step"}
    interrupted = {"kind": "error", "stage": "codegen", "type": "KeyboardInterrupt", "message": ""}
    stopped = {"kind": "exited", "exit_code": 130, "signal": 2, "seconds": 9.0}
    events = (begun, {**interrupted, "compile": "0/0"}, stopped)
    folder = write_recording(tmp_path / "recording", *events)
    data = {"number": 1, "seconds": 5.0, "compile": "0/0", "moved": {"after": 9.0}}
    (folder / "stall-1.json").write_text(json.dumps(data))
    recording = load(folder)
    (finding,) = stall(recording)
    assert finding.is_problem
    assert finding.title.startswith("No progress for 5 s or more")
    headline = summary_view(recording, diagnose(recording))["headline"]
    assert headline.startswith("no progress for 5 s or more")
