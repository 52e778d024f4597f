"""`inductoscope profile` leaves alone what a program does besides: its profilers on any thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from inductoscope.inside.profiling.kernel_tracer import OWN_PROFILER

# A profiler on another thread: before the first traced call, in the middle of one, and one that
# begins and ends inside a call.
PROFILERS = """\
import sys, threading, time, torch
import torch._inductor.config
from torch.profiler import ProfilerActivity, profile

torch._inductor.config.cpp_wrapper = True
inside = lambda: None

@torch.compiler.disable
def pause():
    inside()

@torch.compile
def compiled(x):
    y = x.sin() + 1
    pause()
    return y.exp() + 2

x = torch.randn(64, 64)
found = []
begun, over = threading.Event(), threading.Event()

def profiled():
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        begun.set()
        over.wait(60)
        for _ in range(3):
            x.cos()
    rows = {row.key: row.count for row in profiler.key_averages()}
    found.append(rows.get("aten::cos", 0))

def on_a_thread():
    begun.clear()
    thread = threading.Thread(target=profiled)
    thread.start()
    return thread

for _ in range(3):
    compiled(x)

over.clear()
thread = on_a_thread()
begun.wait(60)
for _ in range(5):
    compiled(x)
over.set()
thread.join()

def begin_meanwhile():
    global thread, inside
    inside = lambda: None
    thread = on_a_thread()
    time.sleep(0.3)

inside = begin_meanwhile
compiled(x)
thread.join()

def begin_here():
    global inside
    inside = lambda: None
    profiled()

inside = begin_here
compiled(x)
for _ in range(30):
    compiled(x)
open(sys.argv[1], "w").write(repr(found))
"""


def test_the_programs_profilers_see_everything_on_whatever_thread(
    tmp_path: Path, machine_limits: Path
) -> None:
    (tmp_path / "program.py").write_text(PROFILERS)
    command = [sys.executable, "-m", "inductoscope", "profile", "--quiet", "--no-eager"]
    words = ["--json", "profile.json", "--output", "recording", "program.py", "found"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(machine_limits)}
    done = subprocess.run(
        [*command, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "found").read_text() == "[3, 3, 3]"
    view = json.loads((tmp_path / "profile.json").read_text("utf-8"))
    assert OWN_PROFILER in view["notes"]
    # What ran without a profiler of the program's was traced all the same.
    assert {row["measured_by"] for row in view["kernels"]} == {"profiler"}
