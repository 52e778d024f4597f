"""The endings. Patterns hold the part of a first line that does not depend on the machine."""

from __future__ import annotations

import re
import signal

from battery.endings.ending import (
    ATTACH,
    DOCTOR,
    REPORT,
    RUN,
    SHOW,
    ProgramEnding,
    Said,
)

_WRITTEN = Said(0, r"page\.")

_COMPILED = """\
import sys, torch
@torch.compile
def f(x):
    return torch.sin(x) * 2 + 1
y = f(torch.ones(8))
"""

_TRAINING = """\
import time, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
compiled = torch.compile(model)
for step in range(100_000):
    compiled(torch.randn(4, 8)).sum().backward()
    if step == 12:
        print("now", flush=True)
    time.sleep(0.05)
"""

_ENDLESS_COMPILE = """\
import threading, torch
import torch._inductor.graph
def stuck(self, *args, **kwargs):
    print("now", flush=True)
    threading.Event().wait()
torch._inductor.graph.GraphLowering.codegen = stuck
torch.compile(lambda x: x.sin() + 1)(torch.ones(8))
"""


def _read(run: Said, **more: Said) -> dict[str, Said]:
    """What `run` says is what `show` begins with; the page is always written."""
    has_problem = re.search("failed|killed|SIGALRM|in eager", run.first_line) is not None
    shown = Said(int(has_problem), run.first_line)
    return {RUN: run, SHOW: shown, REPORT: _WRITTEN, **more}


ENDINGS: tuple[ProgramEnding, ...] = (
    ProgramEnding(
        "success",
        "it ends well",
        _COMPILED,
        _read(
            Said(0, r"inductoscope: the program ended with exit code 0"),
            doctor=Said(0, r"clean: Nothing found on this machine .*: 1 call of 1 compiled graph"),
            logs=Said(0, r"the program ended and every compile finished"),
        ),
    ),
    ProgramEnding(
        "own-exception",
        "its own exception, outside compiled code",
        _COMPILED + 'raise ValueError("my own mistake")\n',
        _read(
            Said(1, r"inductoscope: the program failed with ValueError at script\.py:\d+, outside"),
            doctor=Said(1, r"not-a-bug: The program fails without torch\.compile too.*ValueError"),
        ),
    ),
    ProgramEnding(
        "exit-code",
        "its own exit code",
        _COMPILED + "sys.exit(3)\n",
        _read(
            Said(3, r"inductoscope: the program ended with exit code 3"),
            doctor=Said(1, r"not-a-bug: The program fails without torch\.compile too"),
        ),
    ),
    ProgramEnding(
        "signal",
        "killed by SIGKILL from outside",
        _TRAINING,
        _read(Said(128 + signal.SIGKILL, r"inductoscope: the program was killed by SIGKILL")),
        signal=signal.SIGKILL,
    ),
    ProgramEnding(
        "timer",
        "its own timer (SIGALRM)",
        _COMPILED + "import signal, time\nsignal.alarm(1)\ntime.sleep(30)\n",
        _read(
            Said(128 + signal.SIGALRM, r"inductoscope: the program was .*SIGALRM"),
            doctor=Said(1, r"not-a-bug: .*SIGALRM|not-a-bug: The program fails without"),
        ),
    ),
    ProgramEnding(
        "out-of-memory",
        "no memory left inside a compiled graph",
        """\
import torch
@torch.compile
def f(x):
    return torch.zeros(1 << 46) + x.sum()
f(torch.ones(3))
""",
        _read(
            Said(1, r"inductoscope: the program failed with RuntimeError inside compiled graph"),
            doctor=Said(1, r"not-a-bug: .*not enough memory|not-a-bug: The program fails without"),
        ),
    ),
    ProgramEnding(
        "compile-error",
        "the compiler raises",
        """\
import torch
import torch._inductor.lowering as lowering
def broken(*args, **kwargs):
    raise RuntimeError("planted")
lowering.lowerings[torch.ops.aten.tanh.default] = broken
torch.compile(lambda x: x.tanh() + 1)(torch.ones(8))
""",
        _read(
            Said(1, r"inductoscope: the program failed with .* while .* was compiled"),
            doctor=Said(1, r"crash: The compiler, or a kernel it generated, crashed"),
            logs=Said(1, r".*(raised|error|failed)"),
        ),
        doctor_options=("--proofs", "1", "--no-workaround"),
    ),
    ProgramEnding(
        "crash",
        "a segmentation fault inside a compiled graph",
        """\
import ctypes, torch
@torch.library.custom_op("ending::die", mutates_args=())
def die(x: torch.Tensor) -> torch.Tensor:
    ctypes.string_at(0)
    return x.clone()
@die.register_fake
def _(x):
    return torch.empty_like(x)
torch.compile(lambda x: die(x.sin()) + 1)(torch.ones(8))
""",
        _read(Said(128 + signal.SIGSEGV, r"inductoscope: the program was killed by SIGSEGV")),
    ),
    ProgramEnding(
        "hang",
        "the compiler never ends",
        _ENDLESS_COMPILE,
        {
            DOCTOR: Said(1, r"hang: The program hangs"),
            ATTACH: Said(1, r".*(stuck|not moved|no progress|makes no)"),
        },
        doctor_options=("--stall", "8", "--proofs", "1", "--no-workaround"),
    ),
    ProgramEnding(
        "limit",
        "it is still running at the time limit",
        _TRAINING,
        {
            DOCTOR: Said(0, r"clean: The time limit was reached after \d+ s: 8 calls"),
            ATTACH: Said(0, r".*"),
        },
        doctor_options=("--time-limit", "45"),
    ),
    ProgramEnding(
        "ctrl-c-before",
        "Ctrl-C before anything is compiled",
        'import time, torch\nprint("now", flush=True)\ntime.sleep(60)\n' + _COMPILED,
        _read(Said(128 + signal.SIGINT, r"inductoscope: the program was stopped by SIGINT")),
        signal=signal.SIGINT,
    ),
    ProgramEnding(
        "ctrl-c-compiling",
        "Ctrl-C while it compiles",
        _ENDLESS_COMPILE,
        _read(Said(128 + signal.SIGINT, r"inductoscope: the program was stopped by SIGINT")),
        signal=signal.SIGINT,
    ),
    ProgramEnding(
        "ctrl-c-running",
        "Ctrl-C in the middle of training",
        _TRAINING,
        _read(
            Said(128 + signal.SIGINT, r"inductoscope: the program was stopped by SIGINT"),
            doctor=Said(0, r"clean: Interrupted: \d+ calls of 1 compiled graph match eager"),
        ),
        signal=signal.SIGINT,
    ),
    ProgramEnding(
        "ctrl-c-late",
        "Ctrl-C after the last compiled call",
        _COMPILED + 'import time\nprint("now", flush=True)\ntime.sleep(60)\n',
        _read(Said(128 + signal.SIGINT, r"inductoscope: the program was stopped by SIGINT")),
        signal=signal.SIGINT,
    ),
    ProgramEnding(
        "nothing-compiled",
        "torch.compile is not used",
        "import torch\nprint(torch.ones(3).sum())\n",
        _read(
            Said(0, r"inductoscope: the program ended with exit code 0"),
            doctor=Said(4, r"not-checked: Nothing was compiled, so nothing was checked"),
        ),
    ),
    ProgramEnding(
        "skipped-function",
        "Dynamo skips the function",
        """\
import torch
@torch.compile
def f(x):
    for _ in range(3):
        x = x.sin()
        torch._dynamo.graph_break()
    return x
f(torch.ones(8))
""",
        _read(
            Said(0, r"inductoscope: your function f ran in eager"),
            doctor=Said(4, r"not-checked: Nothing was checked: your function f ran in eager"),
        ),
    ),
    ProgramEnding(
        "cache-hits",
        "every compile comes from the cache",
        _COMPILED,
        _read(Said(0, r"inductoscope: the program ended with exit code 0")),
        twice=True,
    ),
    ProgramEnding(
        "aot-inductor",
        "AOTInductor makes a package",
        """\
import tempfile, torch
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
exported = torch.export.export(Model(), (torch.ones(8),))
with tempfile.TemporaryDirectory() as folder:
    torch._inductor.aoti_compile_and_package(exported, package_path=f"{folder}/m.pt2")
""",
        _read(
            Said(0, r"inductoscope: the program ended with exit code 0"),
            doctor=Said(
                4, r"not-checked: Nothing was checked: AOTInductor compiled Model into a package"
            ),
        ),
    ),
    ProgramEnding(
        "subprocess",
        "a child process fails, and its parent says so",
        "import subprocess, sys\ncode = '''"
        + _COMPILED
        + 'raise ValueError("in the child")\n'
        + "'''\nsys.exit(subprocess.run([sys.executable, '-c', code]).returncode)\n",
        _read(Said(1, r"inductoscope: .*failed with ValueError")),
    ),
    ProgramEnding(
        "ranks",
        "one of two ranks fails",
        """\
import os, torch
import torch.distributed as dist
dist.init_process_group("gloo")
f = torch.compile(lambda x: x.sin() + 1)
f(torch.ones(8))
if os.environ["RANK"] == "1":
    raise ValueError("on this rank alone")
dist.barrier()
""",
        _read(Said(1, r"inductoscope: rank 1 failed with ValueError")),
        command=("PYTHON", "-m", "torch.distributed.run", "--nproc-per-node", "2", "SCRIPT"),
    ),
    ProgramEnding(
        "notebook",
        "recorded from inside, as in a notebook",
        """\
import inductoscope, torch
f = torch.compile(lambda x: x.sin() + 1)
with inductoscope.record(output="recorded"):
    f(torch.ones(8))
""",
        {SHOW: Said(0, r"inductoscope: recorded from inside the program")},
    ),
)

# What no machine without a GPU can show.
NOT_HERE = (("device out of memory", "needs a GPU; see docs/gpu.md"),)
