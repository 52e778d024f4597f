"""The same faults given to `inductoscope doctor`, which `inductoscope aoti SCRIPT` is as well.

Measured is the time until it says which kernel is guilty. It would go on to cut the graph down, to
prove it with a reproducer and to try a workaround, none of which the guide does; so it is
interrupted there, and its verdict is what it knows by then. `whole` lets it finish.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from battery.fault import Fault
from battery.trial import DOCTOR, make_environment, run_limited, write_files
from bench.aoti.faults import THE_INPUT, THE_OPERATOR, PackageFault

from inductoscope.doctor.finding import SearchProgress
from inductoscope.processes.status import PROC
from inductoscope.recording.events import ClaimMade
from inductoscope.recording.written import written_events

_GUILTY = re.compile(r"\] the guilty (kernel|operator) is (\S+): ")
_TICKS = os.sysconf("SC_CLK_TCK")
# How long the doctor may take, once interrupted, to end its children and to write its verdict.
_GRACE = 60.0
# Notes every process that runs the program, and none that only mentions it.
_COUNTER = """
import os as _os, sys as _sys
if _sys.orig_argv[1:2] and _sys.orig_argv[-1] == "script.py" and "-m" not in _sys.orig_argv:
    with open({path!r}, "a") as _file:
        _file.write(f"{{_os.getpid()}}\\n")
"""


@dataclass(frozen=True)
class Examined:
    """The tool's steps until it named something, or until it ended."""

    # Runs of the program, and graphs that were compiled in forks of it.
    executions: int
    candidates: int
    seconds: float
    cpu_seconds: float
    named: str
    said: str
    # Of the whole examination, with reproducer and workaround; None if it was interrupted.
    whole_seconds: float | None = None
    whole_cpu_seconds: float | None = None


def counted(fault: Fault, path: Path) -> Fault:
    """The fault, with every run of its program noted in a file."""
    return replace(fault, plant=fault.plant + _COUNTER.format(path=str(path)))


def examine(
    fault: PackageFault, folder: Path, cache: Path, limit: float, *, whole: bool = False
) -> Examined:
    """Run the doctor until it names the guilty kernel."""
    runs = folder / "runs.txt"
    program = counted(fault.fault, runs)
    write_files(program, folder)
    runs.unlink(missing_ok=True)
    where = ("--json", "verdict.json", "--output", "doctor")
    started = time.monotonic()
    child = subprocess.Popen(
        [*DOCTOR, *where, "script.py"],
        cwd=folder,
        env=make_environment(program, folder, cache),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        # A shell lets what it starts in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    before = _Usage(time.monotonic() - started, 0.0)
    assert child.stderr is not None
    named, said, at, executions, candidates = "", "", before, 0, 0
    with ended_after(child, limit):
        for line in child.stderr:
            found = _GUILTY.search(line)
            if found is None or named:
                continue
            said = line[found.end() :].strip()
            named = found[2] if found[1] == "kernel" else THE_OPERATOR
            at = _Usage(time.monotonic() - started, cpu_of_tree(child.pid))
            executions, candidates = count_runs(runs), _candidates(folder)
            if not whole:
                os.kill(child.pid, signal.SIGINT)
    usage = _wait(child, _GRACE)
    end = _Usage(time.monotonic() - started, usage)
    verdict = _verdict(folder)
    if not named:
        at, executions, candidates = end, count_runs(runs), _candidates(folder)
    return Examined(
        executions,
        candidates,
        at.seconds,
        at.cpu_seconds,
        named_by(verdict) or named,
        said or str(verdict.get("summary", ""))[:300],
        end.seconds if whole else None,
        end.cpu_seconds if whole else None,
    )


@dataclass(frozen=True)
class _Usage:
    seconds: float
    cpu_seconds: float


@contextlib.contextmanager
def ended_after(
    child: subprocess.Popen[Any], limit: float, *, grace: float = _GRACE
) -> Iterator[None]:
    """Interrupt a child when its time is up, and kill it if that does not end it.

    Whoever reads what it prints would otherwise wait for as long as it lives.
    """
    # Not by the methods of the child, which may reap it: its processor time would be lost.
    timers = [
        threading.Timer(limit, os.kill, [child.pid, signal.SIGINT]),
        threading.Timer(limit + grace, os.kill, [child.pid, signal.SIGKILL]),
    ]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()


def _wait(child: subprocess.Popen[str], limit: float) -> float:
    """Processor seconds of a child and all that it waited for, once it has ended."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        pid, _, used = os.wait4(child.pid, os.WNOHANG)
        if pid:
            child.returncode = 0
            return used.ru_utime + used.ru_stime
        time.sleep(0.2)
    child.kill()
    child.wait()
    return 0.0


def count_runs(path: Path) -> int:
    """How many processes have run the program."""
    return len(set(path.read_text().split())) if path.exists() else 0


def _candidates(folder: Path) -> int:
    """How many candidates the latest investigation has tried."""
    claims = written_events([folder, *folder.glob("doctor/run-*")], ClaimMade.kind)
    searches = [claim["data"] for claim in claims if claim["fact"] == SearchProgress.__name__]
    return int(searches[-1]["candidates"]) if searches else 0


def _verdict(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "verdict.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def named_by(verdict: Mapping[str, Any]) -> str:
    """The culprit that a verdict names: a kernel, an input of the package, a custom operator."""
    culprit = verdict.get("culprit") or {}
    if culprit.get("kernel"):
        return str(culprit["kernel"])
    text = str(verdict.get("summary", ""))
    if verdict.get("stage") == "user":
        return THE_INPUT if re.search(r"\binput \d+ \(", text) else THE_OPERATOR
    return ""


def cpu_of_tree(pid: int) -> float:
    """Processor seconds of a process, of those below it, and of all that these have waited for."""
    parents, used = {}, {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        used[number] = sum(int(field) for field in fields[11:15]) / _TICKS
    below = {pid}
    while more := {child for child, parent in parents.items() if parent in below} - below:
        below |= more
    return sum(used.get(each, 0.0) for each in below)


def package_alone(folder: Path, limit: float) -> str:
    """Findings of `aoti model.pt2 --inputs` where nothing but the package is there."""
    command = [sys.executable, "-m", "inductoscope", "aoti", "model.pt2", "--inputs", "inputs.pt"]
    run_limited([*command, "--json", "package.json", "--quiet"], folder, {**os.environ}, limit)
    try:
        found = json.loads((folder / "package.json").read_text())
    except (OSError, ValueError):
        return ""
    texts = [str(finding["text"]) for finding in found["findings"]]
    return texts[0] if texts else str(found["summary"])
