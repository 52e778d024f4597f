"""Runs a reproducer in fresh processes, to prove that it shows the failure.

Most of the time of such a run is spent loading torch and its compiler. So one process may be
started early, while something else runs: it loads torch, waits for the script, and forks to run it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.processes.children import Child, ChildCall, start_group
from inductoscope.processes.ending import end_child

TIMES = 3

_SERVER = "inductoscope.inside.repro.script_server:serve"
_SECONDS_TO_LOAD = 300.0
# Seconds for the server to end its current runs.
_GRACE = 1.0

# Exit code and output; None for a run that did not end in time.
_Run = tuple[int | None, str]


@dataclass(frozen=True)
class Verification:
    """How often a script failed as expected, and its output."""

    failed: int
    of: int
    output: str

    @property
    def is_verified(self) -> bool:
        """Whether every run failed."""
        return self.of > 0 and self.failed == self.of


class FreshProcesses:
    """A runner of scripts, each in a new process."""

    def __init__(self, environment: Mapping[str, str], folder: Path, *, times: int = TIMES) -> None:
        self.environment = dict(environment)
        self._folder = folder
        self.times = times
        # The process that has torch loaded, and the running scripts.
        self._server: Child | None = None
        self._scripts: list[subprocess.Popen[bytes]] = []
        self._is_closed = False

    def start(self) -> None:
        """Start the process that loads torch for later runs, unless it is running."""
        self._raise_if_closed()
        if self._server is None:
            call = ChildCall(_SERVER, environment=self.environment, folder=self._folder)
            quiet = subprocess.DEVNULL
            self._server = Child(call, stdout=quiet, stderr=quiet)

    def verify(
        self,
        script: Path,
        expected: Sequence[str],
        *,
        seconds: float = 180.0,
        is_timed: bool = False,
    ) -> Verification:
        """Run the script `times` times; each run must exit with 1 and print all of `expected`.

        Scripts that measure time run one after the other, others in parallel.
        """
        script = script.absolute()
        at_once = 1 if is_timed else self.times
        runs = self._in_forks(script, seconds, at_once)
        if not runs:  # Each run then loads torch itself.
            with ThreadPoolExecutor(at_once) as pool:
                runs = list(pool.map(lambda _: self._alone(script, seconds), range(self.times)))
        # A run that timed out is repeated alone.
        runs = [run if run[0] is not None else self._alone(script, 2 * seconds) for run in runs]
        failed = [
            output
            for code, output in runs
            if code == 1 and all(text in output for text in expected)
        ]
        return Verification(len(failed), self.times, failed[0] if failed else runs[0][1])

    def _in_forks(self, script: Path, seconds: float, at_once: int) -> list[_Run]:
        """Run a script in forks of the process that has torch loaded; [] if that is impossible."""
        self.start()
        server = self._server
        assert server is not None
        most = seconds * self.times / at_once + _SECONDS_TO_LOAD
        request = {"script": str(script), "times": self.times}
        try:
            server.send({**request, "at_once": at_once, "seconds": seconds})
            runs = server.answer("runs", most)["runs"]
        except (ToolFailure, OSError, ValueError):  # Another thread may have ended it.
            self._raise_if_closed()
            return []
        finally:
            self._server = None
            server.end()
        return [(code, output) for code, output in runs or ()]

    def _alone(self, script: Path, seconds: float) -> _Run:
        self._raise_if_closed()
        child = start_group(
            [sys.executable, str(script)],
            environment=self.environment,
            folder=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        self._scripts.append(child)
        try:
            output, _ = child.communicate(timeout=seconds)
            return child.returncode, output.decode("utf-8", "replace")
        except subprocess.TimeoutExpired:
            return None, ""
        except (ValueError, OSError):  # Another thread has closed the pipes.
            self._raise_if_closed()
            raise
        finally:
            end_child(child)
            self._scripts.remove(child)

    def _raise_if_closed(self) -> None:
        if self._is_closed:
            raise ToolFailure("The reproducer was not run to the end: the examination was over.")

    def close(self) -> None:
        """End all processes, and start no more."""
        self._is_closed = True
        if self._server is not None:
            self._server.end(grace=_GRACE)
        for child in list(self._scripts):
            end_child(child, grace=_GRACE)
