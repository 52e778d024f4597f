"""Runs a reproducer in fresh processes, to prove that it shows the failure.

Most of such a run is spent loading torch and its compiler. So the processes may be started early,
while something else runs: they load torch, wait for a script, run it and end.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from inductoscope.processes.ending import end_child
from inductoscope.processes.limited import start_group

TIMES = 3

# What a process does while it waits for its script. If torch cannot be loaded, the script will show
# that; warnings while torch is loaded are not output of the script.
_WAITING = """
import contextlib, gc, os, runpy, sys, warnings
gc.disable()  # There are ever more objects to go through, and none to free.
with contextlib.suppress(BaseException), warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import torch._dynamo, torch._inductor.compile_fx
gc.enable()
script = sys.stdin.readline().rstrip("\\n")
if script:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv, sys.path[0] = [script], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
"""
# The program that it waits for comes first.
_NICENESS = 10


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


class FreshProcesses:
    """New processes, each of which runs one script once."""

    def __init__(self, environment: Mapping[str, str], folder: Path, *, times: int = TIMES) -> None:
        self._environment = dict(environment)
        self._folder = folder
        self._times = times
        self._children: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        """Start them, so that they load torch, unless they are running already."""
        while len(self._children) < self._times:
            self._children.append(_start(self._environment, self._folder))

    def verify(
        self, script: Path, expected: Sequence[str], *, seconds: float = 180.0
    ) -> Verification:
        """Run the script in all of them; each has to exit with 1 and to print all of `expected`."""
        self.start()
        with ThreadPoolExecutor(self._times) as pool:
            runs = list(pool.map(lambda child: _run(child, script, seconds), self._children))
        # A run that did not end in time is repeated alone.
        runs = [run if run[0] is not None else self._alone(script, 2 * seconds) for run in runs]
        self._children.clear()
        failed = [
            output
            for code, output in runs
            if code == 1 and all(text in output for text in expected)
        ]
        return Verification(len(failed), self._times, failed[0] if failed else runs[0][1])

    def _alone(self, script: Path, seconds: float) -> tuple[int | None, str]:
        self._children = [_start(self._environment, self._folder, niceness=0)]
        return _run(self._children[0], script, seconds)

    def close(self) -> None:
        """End all processes."""
        for child in self._children:
            end_child(child)


def _start(
    environment: Mapping[str, str], folder: Path, niceness: int = _NICENESS
) -> subprocess.Popen[bytes]:
    return start_group(
        [sys.executable, "-c", _WAITING],
        environment=environment,
        folder=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        niceness=niceness,
    )


def _run(child: subprocess.Popen[bytes], script: Path, seconds: float) -> tuple[int | None, str]:
    """Exit code and output; None for a run that did not end in time."""
    try:
        output, _ = child.communicate(f"{script.absolute()}\n".encode(), timeout=seconds)
        return child.returncode, output.decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        end_child(child)
