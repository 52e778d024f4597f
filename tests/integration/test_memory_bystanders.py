"""`profile --memory` leaves alone what a program does besides: its profilers, modes and signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from inductoscope.inside.profiling.memory_steps import OWN_PROFILER
from inductoscope.profiling.memory_trials import MemoryProfile, profile_memory
from inductoscope.profiling.turns import ProgramRuns
from inductoscope.recording.location import create_recording

# A profiler that begins in the middle of a step, one on another thread, and one that warms up.
PROFILERS = """\
import sys, threading, torch
from torch.profiler import ProfilerActivity, profile, schedule

compiled = torch.compile(lambda x: x.sin() + 1)
x = torch.randn(64, 64)
found = []

def count(profiler):
    rows = {row.key: row.count for row in profiler.key_averages()}
    found.append(rows.get("aten::cos", 0))

def profiled():
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(3):
            x.cos()
    count(profiler)

compiled(x)
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    for _ in range(3):
        x.cos()
        compiled(x)
count(profiler)
compiled(x)
thread = threading.Thread(target=profiled)
thread.start()
thread.join()
for _ in range(4):
    compiled(x)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=2),
    on_trace_ready=count,
) as profiler:
    for _ in range(4):
        compiled(x)
        x.cos()
        profiler.step()
for _ in range(8):
    compiled(x)
open(sys.argv[1], "w").write(repr(found))
"""

# What the tool does with tensors is not to be seen by these, nor is a time limit to be swallowed.
MODES = """\
import signal, torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from inductoscope.inside.profiling.memory_steps import held_memory
from inductoscope.inside.profiling.memory_steps import summaries_of
from inductoscope.inside.profiling.memory_steps import memory_of

seen = []

class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))

class Operations(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        seen.append(str(function))
        return function(*args, **(kwargs or {}))

model, x = torch.nn.Linear(4, 4), torch.ones(4, 4, requires_grad=True)
with Functions(), Operations():
    found = summaries_of([x, model.weight]), held_memory({1: x}), memory_of(x)
    told = list(seen)
    x.sum()
assert [summary.total for summary in found[0]][0] == 16.0, found[0]
assert found[2][1] == 64

def time_is_up(*signal):
    raise RuntimeError("time is up")

class Slow:
    def untyped_storage(self):
        signal.raise_signal(signal.SIGUSR1)

signal.signal(signal.SIGUSR1, time_is_up)
try:
    memory_of(Slow())
    assert False, "the program's time limit was swallowed"
except RuntimeError as error:
    assert str(error) == "time is up"
assert memory_of(torch.ones(4).to_sparse()) == (0, 0)
print(told, bool(seen[len(told):]))
"""

# A step that nobody ends: the program goes on without a compiled call, in a backward pass at first.
ENDLESS = """\
import threading, time, torch
from inductoscope.inside.profiling.memory_steps import TIME_UP, StepTracer

tracer = StepTracer(longest=0.2)
before = threading.active_count()
tracer.call_begins(("function", "f", ""), {}, waits=False)
assert tracer.is_open
assert threading.active_count() == before
x = torch.ones(4, requires_grad=True)
y = x * 2
y.register_hook(lambda gradient: time.sleep(0.5))
y.sum().backward()
end = time.monotonic() + 20
while tracer.is_open and time.monotonic() < end:
    torch.ones(1000)
(step,) = tracer.as_data(1).steps
assert step.ended_by == TIME_UP, step.ended_by
assert not torch.autograd._profiler_enabled()
print(len(step.events) > 0)
"""

KILLED = """\
import os, signal, time, torch
compiled = torch.compile(lambda x: x.sin() + 1)
x = torch.randn(64, 64)
compiled(x)
end = time.monotonic() + 6
while time.monotonic() < end:
    compiled(x)
    time.sleep(0.5)
os.kill(os.getpid(), signal.SIGKILL)
"""


def memory_of(folder: Path, text: str, *arguments: str) -> MemoryProfile:
    (folder / "program.py").write_text(text)
    command = [sys.executable, str(folder / "program.py"), *arguments]
    runs = ProgramRuns(command, folder / "trials", lambda text: None, turns=0)
    recording = create_recording(command, output=folder / "recording", fresh=True)
    return profile_memory(runs, recording, stdout=subprocess.DEVNULL, with_eager=False)


def printed_by(text: str) -> str:
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_programs_own_profilers_see_everything(tmp_path: Path) -> None:
    found = memory_of(tmp_path, PROFILERS, str(tmp_path / "found"))
    assert found.ending.exit_code == 0
    assert (tmp_path / "found").read_text() == "[3, 3, 2]"
    assert OWN_PROFILER in found.notes
    # What ran without a profiler of the program's was traced all the same.
    assert found.steps


def test_modes_of_the_program_are_not_told_of_the_tools_work() -> None:
    assert printed_by(MODES) == "[] True"


def test_a_step_that_nobody_ends_is_ended_when_its_time_is_up() -> None:
    assert printed_by(ENDLESS) == "True"


def test_what_was_seen_is_there_though_the_program_is_killed(tmp_path: Path) -> None:
    found = memory_of(tmp_path, KILLED)
    assert found.ending.signal == signal.SIGKILL
    assert found.steps
