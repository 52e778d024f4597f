"""The system's clock is set while a program is profiled: nothing is measured by it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from inductoscope.recording.location import create_recording
from inductoscope.recording.reader import open_recording

# Stands before libc's: the program sets a clock of its own, and no other process notices.
CLOCK = """\
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile long long ahead = 0;

void set_clock(long long seconds) { ahead = seconds; }

int clock_gettime(clockid_t which, struct timespec *found) {
  int failed = syscall(SYS_clock_gettime, which, found);
  if (!failed && which == CLOCK_REALTIME) found->tv_sec += ahead;
  return failed;
}
"""

# Two buffers of which the second takes over the memory of the first; the clock is set in between.
PROGRAM = """\
import ctypes, os, time, torch
from inductoscope.profiling.memory_blocks import devices_of
from inductoscope.inside.profiling.memory_steps import NEXT_CALL, StepTracer, keep_table

set_clock = ctypes.CDLL(os.environ["LD_PRELOAD"]).set_clock
has_table = keep_table()
thing = "function", "f", ""
for jump in 3600, -3600, 0:
    before = time.time()
    tracer = StepTracer()
    tracer.has_table = has_table
    tracer.call_begins(thing, {}, waits=False)
    tracer.graph_entered("graph")
    first = torch.empty(1 << 20)
    tracer.graph_named("graph", {"buf0": first})
    time.sleep(0.1)
    set_clock(ctypes.c_longlong(jump))
    time.sleep(0.1)
    del first
    second = torch.empty(1 << 20)
    tracer.graph_named("graph", {"buf1": second})
    tracer.graph_left("graph", second)
    tracer.call_begins(thing, {}, waits=False)
    tracer.close(NEXT_CALL)
    del second
    step = next(step for step in tracer.as_data(1).steps if step.number == 1)
    assert step.ended_by == NEXT_CALL, step.ended_by
    assert 0.2 <= (step.end - step.begin) / 1e9 < 100, step
    large = [block for block in devices_of(step)[0].blocks if block.bytes == 4 << 20]
    names = [[note.name for note in block.names] for block in large]
    assert names == [["buf0"], ["buf1"]], (jump, names)
    is_set = abs(time.time() - before) > 1800
    print(jump, is_set)
"""


# Events before and after the clock is set.
WRITER = """\
import ctypes, os, sys, time
from pathlib import Path
from inductoscope.recording.events import ProcessStart
from inductoscope.recording.writer import StreamWriter

set_clock = ctypes.CDLL(os.environ["LD_PRELOAD"]).set_clock
writer = StreamWriter(Path(sys.argv[1]), first_event=ProcessStart)
for jump in 0, 3600, -3600:
    set_clock(ctypes.c_longlong(jump))
    writer.emit(ProcessStart())
print(round(time.time()))
"""


def printed_with_own_clock(folder: Path, program: str, *words: str) -> str:
    """Output of a program whose own clock it sets itself."""
    (folder / "clock.c").write_text(CLOCK)
    library = folder / "clock.so"
    build = ["gcc", "-shared", "-fPIC", str(folder / "clock.c"), "-o", str(library)]
    subprocess.run(build, check=True)
    done = subprocess.run(
        [sys.executable, "-c", program, *words],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_step_is_read_as_ever_though_the_clock_is_set_in_it(tmp_path: Path) -> None:
    printed = printed_with_own_clock(tmp_path, PROGRAM)
    # The last one sets it right again.
    assert printed.splitlines() == ["3600 True", "-3600 True", "0 True"]


def test_what_lies_between_two_events_stays_what_it_was(tmp_path: Path) -> None:
    """Stages of a compile are timed by their events."""
    folder = create_recording(["program"], output=tmp_path / "recording")
    printed = printed_with_own_clock(tmp_path, WRITER, str(folder))
    assert time.time() - int(printed) > 1800, "the program's clock was set"
    times = [entry.time for entry in open_recording(folder).entries()]
    assert len(times) == 4
    assert times == sorted(times)
    assert times[-1] - times[0] < 60
    assert abs(times[0] - time.time()) < 100
