"""Runs one fault, in a folder of its own, with a time limit: plainly, or under the doctor."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from battery.fault import Fault

Found = TypeVar("Found")

# Commands that run now.
RUNNING: set[subprocess.Popen[bytes]] = set()

DOCTOR = (sys.executable, "-m", "inductoscope", "doctor")


@dataclass(frozen=True)
class Outcome:
    """How a command ended; the exit code is None if its time ran out."""

    exit_code: int | None
    output: str
    seconds: float


def write_files(fault: Fault, folder: Path) -> Path:
    """The script and its plant, as a user would have them on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "script.py"
    script.write_text(fault.script)
    if fault.plant:
        (folder / "plant").mkdir(exist_ok=True)
        for name, text in {"sitecustomize.py": fault.plant, **fault.beside_plant}.items():
            (folder / "plant" / name).write_text(text)
    return script


def make_environment(fault: Fault, folder: Path, cache: Path) -> dict[str, str]:
    """The caller's environment without torch's switches, with the plant and a cache of its own.

    A cached graph knows nothing of plants: one that another fault left would be taken for this
    one's.
    """
    found = {k: v for k, v in os.environ.items() if not k.startswith(("INDUCTOSCOPE", "TORCH"))}
    found["TORCHINDUCTOR_CACHE_DIR"] = str(cache / folder.name)
    if fault.plant:
        own = [str(folder / "plant"), *filter(None, [found.get("PYTHONPATH")])]
        found["PYTHONPATH"] = os.pathsep.join(own)
    return found


def run_limited(
    command: list[str], folder: Path, environment: dict[str, str], limit: float
) -> Outcome:
    """The command and all that it started end with the time limit."""
    started = time.monotonic()
    log = folder / "output.txt"
    with log.open("wb") as stream:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        RUNNING.add(child)
        try:
            code: int | None = child.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end_group(child)
            RUNNING.discard(child)
    return Outcome(code, log.read_text(errors="replace"), time.monotonic() - started)


def side_by_side(jobs: Sequence[Callable[[], Found]], at_a_time: int) -> Iterator[Found]:
    """The results of all jobs as they come; whatever ends this ends what the jobs have started."""
    pool = ThreadPoolExecutor(at_a_time)
    try:
        for future in as_completed([pool.submit(job) for job in jobs]):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        end_running()


def end_running() -> None:
    """End what runs in other threads, which no exception of this one reaches."""
    for child in [*RUNNING]:
        _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    # First a request: the doctor ends its own children, which have process groups of their own.
    for number, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
        if child.poll() is not None and number is signal.SIGTERM:
            continue
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=patience)


def run_plain(fault: Fault, folder: Path, cache: Path, limit: float) -> Outcome:
    script = write_files(fault, folder)
    environment = make_environment(fault, folder, cache)
    return run_limited([sys.executable, script.name], folder, environment, limit)


def run_doctor(
    fault: Fault, folder: Path, cache: Path, limit: float, options: Sequence[str] = ()
) -> tuple[Outcome, dict[str, Any] | None]:
    """The doctor's verdict, if it wrote one."""
    script = write_files(fault, folder)
    verdict = folder / "verdict.json"
    verdict.unlink(missing_ok=True)
    shutil.rmtree(folder / "doctor", ignore_errors=True)  # Of a run that was interrupted.
    where = ("--json", str(verdict), "--output", str(folder / "doctor"))
    command = [*DOCTOR, *where, *options, script.name]
    outcome = run_limited(command, folder, make_environment(fault, folder, cache), limit)
    try:
        found = json.loads(verdict.read_text())
    except (OSError, ValueError):
        return outcome, None
    return outcome, found if isinstance(found, dict) else None


def shows_symptom(fault: Fault, outcome: Outcome) -> bool:
    """Whether a plain run looks as the truth says, as far as a user can see it."""
    code, text = outcome.exit_code, outcome.output
    raised = "Traceback (most recent call last)" in text
    refused = "CppCompileError" in text
    if fault.truth.kind == "hang":
        return code is None
    if code is None:
        return False
    looks = {
        "clean": code == 0,
        "wrong-result": code == 1 and not raised and "finite: True" in text,
        "nan": code == 1 and not raised and "finite: False" in text,
        "crash": (code < 0 or raised) and not refused,
        "compile-error": refused,
        "not-a-bug": code != 0,
        "not-inductor": code != 0,
    }
    return looks[fault.truth.kind]
