"""The endings. Patterns hold the part of a first line that does not depend on the machine."""

from __future__ import annotations

import signal

from battery.endings.ending import (
    ATTACH,
    DOCTOR,
    LOGS,
    REPORT,
    RUN,
    SHOW,
    SHOW_EXAMINED,
    Interruption,
    ProgramEnding,
    Said,
)
from battery.endings.programs import COMPILED, ENDLESS_COMPILE, WAITS, training

_WRITTEN = Said(0, r"^page\.html \(\d")
_HAS_ENDED = Said(2, r"^inductoscope: There is no process \d+")
_IS_STUCK = Said(1, r"^pid \d+ has made no progress for 5 s")
_RUNS = Said(0, r"^pid \d+ is making progress: ")
_NO_END = Said(1, r"^after compilation: every compile finished, but the log does not show that")
_ENDED = Said(0, r"^clean: the program ended and every compile finished")

_IS_NOTEBOOK = Said(2, r"^inductoscope: notebook\.ipynb is a notebook, which Python cannot run")
# torch's words for it differ by processor.
_NO_MEMORY = r"(not enough memory|can't allocate memory)"
_NOTHING_YET = Said(4, r"^not-checked: Interrupted, before any call of a compiled graph was comp")


def _said(
    run: Said,
    doctor: Said,
    logs: Said,
    attach: Said = _HAS_ENDED,
    *,
    shown: int = 0,
) -> dict[str, Said]:
    """`show` begins with the findings of `run`, and the doctor's verdict; a page is written."""
    verdict = doctor.first_line.removeprefix("^").partition(":")[0]
    return {
        RUN: run,
        SHOW: Said(shown, run.first_line),
        REPORT: _WRITTEN,
        DOCTOR: doctor,
        SHOW_EXAMINED: Said(int(doctor.exit_code == 1 or shown), f"^doctor: {verdict}"),
        LOGS: logs,
        ATTACH: attach,
    }


def _everywhere(number: int) -> dict[str, Interruption]:
    return {command: Interruption(number) for command in (RUN, DOCTOR, LOGS)}


ENDINGS: tuple[ProgramEnding, ...] = (
    ProgramEnding(
        "success",
        "it ends well",
        COMPILED,
        _said(
            Said(0, r"^inductoscope: the program ended with exit code 0"),
            Said(0, r"^clean: Nothing found on this machine .*: 1 call of 1 compiled graph"),
            _ENDED,
        ),
    ),
    ProgramEnding(
        "own-exception",
        "its own exception, outside compiled code",
        COMPILED + 'raise ValueError("my own mistake")\n',
        _said(
            Said(1, r"^inductoscope: the program failed with ValueError at script\.py:6, outside"),
            Said(1, r"^not-a-bug: The program fails without torch\.compile too.*ValueError: my"),
            Said(1, r"^error: an exception, not a hang: ValueError: my own mistake"),
            shown=1,
        ),
    ),
    ProgramEnding(
        "exit-code",
        "its own exit code",
        COMPILED + "sys.exit(3)\n",
        _said(
            Said(3, r"^inductoscope: the program ended with exit code 3"),
            Said(1, r"^not-a-bug: The program fails without torch\.compile too.*exit code 3"),
            _ENDED,
        ),
    ),
    ProgramEnding(
        "signal",
        "killed by SIGKILL from outside",
        training(100),
        _said(
            Said(128 + signal.SIGKILL, r"^inductoscope: the program was killed by SIGKILL"),
            Said(1, r"^unknown: SIGKILL ended the program in one run and not in another"),
            _NO_END,
            _RUNS,
            shown=1,
        ),
        interruptions=_everywhere(signal.SIGKILL),
    ),
    ProgramEnding(
        "timer",
        "its own timer (SIGALRM)",
        COMPILED + "import signal, time\nsignal.alarm(1)\ntime.sleep(30)\n",
        _said(
            Said(128 + signal.SIGALRM, r"^inductoscope: the program was stopped by SIGALRM"),
            Said(1, r"^not-a-bug: The program fails without .* killed by SIGALRM"),
            _NO_END,
            shown=1,
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
        _said(
            Said(1, r"^inductoscope: the program failed with RuntimeError inside compiled graph"),
            Said(1, rf"^not-a-bug: The program fails without .* {_NO_MEMORY}"),
            Said(1, rf"^error: an exception, not a hang: RuntimeError: .*{_NO_MEMORY}"),
            shown=1,
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
        _said(
            Said(1, r"^inductoscope: the program failed with InductorError while .* was compiled"),
            Said(1, r"^crash: The compiler, or a kernel it generated, crashed .*aten\.tanh"),
            Said(1, r"^error: an exception, not a hang: .*InductorError"),
            shown=1,
        ),
        options={DOCTOR: ("--proofs", "1", "--no-workaround")},
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
        _said(
            Said(128 + signal.SIGSEGV, r"^inductoscope: the program was killed by SIGSEGV"),
            Said(1, r"^not-a-bug: The program fails without torch\.compile too.* by SIGSEGV"),
            _NO_END,
            shown=1,
        ),
    ),
    ProgramEnding(
        "hang",
        "the compiler never ends (`run` is stopped with Ctrl-C)",
        ENDLESS_COMPILE,
        {
            **_said(
                Said(128 + signal.SIGINT, r"^inductoscope: stall 1: no progress for 8 s"),
                Said(1, r"^hang: The program hangs at script\.py:\d, in stuck"),
                Said(
                    1,
                    r"^Inductor before autotuning: the last line of its compile comes from low",
                ),
                _IS_STUCK,
            ),
            SHOW: Said(1, r"^inductoscope: no progress for \d+ s or more: Inductor makes no"),
        },
        interruptions={
            RUN: Interruption(signal.SIGINT, after="inductoscope: "),
            LOGS: Interruption(signal.SIGKILL),
        },
        options={
            RUN: ("--stall", "8"),
            DOCTOR: ("--stall", "8", "--proofs", "1", "--no-workaround"),
        },
    ),
    ProgramEnding(
        "limit",
        "it is still running at the time limit (a SIGTERM for `run`)",
        training(),
        _said(
            Said(128 + signal.SIGTERM, r"^inductoscope: the program was stopped by SIGTERM"),
            Said(0, r"^clean: The time limit was reached after \d+ s: 8 calls of 1 compiled"),
            _NO_END,
            _RUNS,
        ),
        interruptions={
            RUN: Interruption(signal.SIGTERM),
            LOGS: Interruption(signal.SIGTERM),
        },
        options={DOCTOR: ("--time-limit", "100")},
    ),
    ProgramEnding(
        "ctrl-c-before",
        "Ctrl-C before anything is compiled",
        f"import torch{WAITS}{COMPILED}",
        _said(
            Said(128 + signal.SIGINT, r"^inductoscope: the program was stopped by SIGINT"),
            _NOTHING_YET,
            Said(1, r"^interrupted: interrupted in user code; the log shows no compile"),
            _IS_STUCK,
        ),
        interruptions=_everywhere(signal.SIGINT),
    ),
    ProgramEnding(
        "ctrl-c-compiling",
        "Ctrl-C while it compiles",
        ENDLESS_COMPILE,
        _said(
            Said(128 + signal.SIGINT, r"^inductoscope: the program was .* while it compiled"),
            _NOTHING_YET,
            Said(1, r"^Inductor before autotuning: interrupted in lowering"),
            _IS_STUCK,
        ),
        interruptions=_everywhere(signal.SIGINT),
    ),
    ProgramEnding(
        "ctrl-c-running",
        "Ctrl-C in the middle of training",
        training(),
        _said(
            Said(128 + signal.SIGINT, r"^inductoscope: the program was stopped by SIGINT"),
            Said(0, r"^clean: Interrupted: \d+ calls of 1 compiled graph match eager"),
            Said(1, r"^after compilation: interrupted in user code"),
            _RUNS,
        ),
        interruptions=_everywhere(signal.SIGINT),
    ),
    ProgramEnding(
        "ctrl-c-late",
        "Ctrl-C after the last compiled call",
        f"{COMPILED}{WAITS}",
        _said(
            Said(128 + signal.SIGINT, r"^inductoscope: the program was stopped by SIGINT"),
            Said(0, r"^clean: Interrupted: 1 call of 1 compiled graph matches eager"),
            Said(1, r"^after compilation: interrupted in user code"),
            _IS_STUCK,
        ),
        interruptions=_everywhere(signal.SIGINT),
    ),
    ProgramEnding(
        "nothing-compiled",
        "`torch.compile` is not used",
        "import torch\nprint(torch.ones(3).sum())\n",
        _said(
            Said(
                0, r"^inductoscope: the program ended with exit code 0 .*; no compile was recorded"
            ),
            Said(4, r"^not-checked: Nothing was compiled, so nothing was checked"),
            Said(2, r"^inductoscope: Found no torch log line in .* or it compiled nothing"),
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
        _said(
            Said(0, r"^inductoscope: your function f ran in eager"),
            Said(4, r"^not-checked: Nothing was checked: your function f ran in eager"),
            Said(0, r"^clean: the program ended; the log shows no compile"),
            shown=1,
        ),
    ),
    ProgramEnding(
        "cache-hits",
        "every compile comes from the cache",
        COMPILED,
        _said(
            Said(0, r"^inductoscope: the program ended with exit code 0"),
            Said(0, r"^clean: Nothing found on this machine .*: 1 call of 1 compiled graph"),
            _ENDED,
        ),
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
        _said(
            Said(0, r"^inductoscope: the program ended with exit code 0"),
            Said(
                4, r"^not-checked: Nothing was checked: AOTInductor compiled Model, and no process"
            ),
            _ENDED,
        ),
    ),
    ProgramEnding(
        "called-package",
        "AOTInductor makes a package, and the program calls it",
        """\
import tempfile, torch
from torch.export.pt2_archive._package import load_pt2
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2
exported = torch.export.export(Model(), (torch.ones(8),))
with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/m.pt2"
    torch._inductor.aoti_compile_and_package(exported, package_path=path)
    print(load_pt2(path).aoti_runners["model"](torch.ones(8)).sum())
""",
        _said(
            Said(0, r"^inductoscope: the program ended with exit code 0"),
            Said(0, r"^clean: Nothing found on this machine .*: 1 call of 1 compiled graph"),
            _ENDED,
        ),
    ),
    ProgramEnding(
        "subprocess",
        "a child process fails, and its parent says so",
        "import subprocess, sys\ncode = '''"
        + COMPILED
        + 'raise ValueError("in the child")\n'
        + "'''\nsys.exit(subprocess.run([sys.executable, '-c', code]).returncode)\n",
        _said(
            Said(1, r"^inductoscope: .*failed with ValueError"),
            Said(1, r"^not-a-bug: The program fails without torch\.compile too.*ValueError: in"),
            Said(1, r"^error: an exception, not a hang: ValueError: in the child"),
            shown=1,
        ),
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
        _said(
            Said(1, r"^inductoscope: rank 1 failed with ValueError"),
            Said(1, r"^not-a-bug: The program fails without .*ValueError: on this .*\(rank 1\)"),
            Said(1, r"^error: an exception, not a hang: ValueError: on this rank alone"),
            shown=1,
        ),
        command=("PYTHON", "-m", "torch.distributed.run", "--nproc-per-node", "2", "SCRIPT"),
    ),
    ProgramEnding(
        "notebook",
        "a notebook, which records itself",
        f"""\
import inductoscope, torch
f = torch.compile(lambda x: x.sin() + 1)
with inductoscope.record():
    f(torch.ones(8))
{WAITS}""",
        {
            RUN: _IS_NOTEBOOK,
            SHOW: Said(0, r"^inductoscope: recorded from inside the program"),
            REPORT: _WRITTEN,
            DOCTOR: _IS_NOTEBOOK,
            LOGS: _NO_END,
            ATTACH: _IS_STUCK,
        },
        interruptions={LOGS: Interruption(signal.SIGTERM)},
        command=("NOTEBOOK",),
        without={SHOW_EXAMINED: "the doctor refuses a notebook, so it has recorded nothing"},
    ),
)
