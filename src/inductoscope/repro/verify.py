"""Runs a reproducer in fresh processes before it is called one."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from inductoscope.capture.launch import die_with_parent

TIMES = 3


@dataclass(frozen=True)
class Verification:
    """How often a script failed the way it should, and what it printed."""

    failed: int
    of: int
    output: str

    @property
    def is_verified(self) -> bool:
        """Every run failed."""
        return self.of > 0 and self.failed == self.of


def verify(
    script: Path,
    expected: str,
    environment: Mapping[str, str],
    *,
    times: int = TIMES,
    at_once: int | None = None,
    seconds: float = 180.0,
) -> Verification:
    """Run the script `times` times; each has to exit with 1 and to print `expected`."""
    with ThreadPoolExecutor(max_workers=at_once or os.cpu_count() or 1) as pool:
        runs = list(pool.map(lambda _: _run(script, environment, seconds), range(times)))
    failed = [output for code, output in runs if code == 1 and expected in output]
    shown = failed[0] if failed else (runs[0][1] if runs else "")
    return Verification(len(failed), times, shown)


def _run(script: Path, environment: Mapping[str, str], seconds: float) -> tuple[int | None, str]:
    """Exit code and output; None for a run that did not end in time."""
    child = subprocess.Popen(
        [sys.executable, str(script)],
        env=dict(environment),
        cwd=script.parent,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        preexec_fn=die_with_parent,
    )
    try:
        output, _ = child.communicate(timeout=seconds)
        return child.returncode, output
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        _end_group(child.pid)
        child.wait()


def _end_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
