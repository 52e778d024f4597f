"""A real Dask cluster on this machine: a scheduler and workers, each a process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from support.waiting import wait_until

_DASK = (sys.executable, "-m", "dask")
_SECONDS = 60.0


@dataclass
class DaskCluster:
    """Processes that were started, and where the scheduler answers."""

    folder: Path
    address: str = ""
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def add_worker(self, *before: str, **environment: str) -> subprocess.Popen[bytes]:
        """Start a worker with one thread, and wait until the scheduler knows it.

        `before` is put before its command.
        """
        number = len(self.workers)
        log = self.folder / f"worker-{number}.txt"
        options = ("--no-nanny", "--nthreads", "1", "--no-dashboard", "--name", str(number))
        local = ("--local-directory", str(self.folder / f"local-{number}"))
        place = self.address.replace("dask://", "tcp://")
        child = _started([*before, *_DASK, "worker", place, *options, *local], log, environment)
        self.workers.append(child)
        assert wait_until(lambda: "Registered to" in log.read_text(), seconds=_SECONDS), (
            log.read_text()
        )
        return child

    def kill(self, number: int) -> None:
        """Kill a worker the hard way."""
        self.workers[number].send_signal(signal.SIGKILL)
        self.workers[number].wait()


@contextlib.contextmanager
def running_cluster(folder: Path, workers: int) -> Iterator[DaskCluster]:
    """A scheduler and so many workers, which are all gone afterwards."""
    cluster = DaskCluster(folder)
    log = folder / "scheduler.txt"
    options = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--no-show")
    scheduler = _started([*_DASK, "scheduler", *options], log, {})
    try:
        assert wait_until(lambda: "Scheduler at:" in log.read_text(), seconds=_SECONDS), (
            log.read_text()
        )
        line = next(line for line in log.read_text().splitlines() if "Scheduler at:" in line)
        cluster.address = line.rpartition("tcp://")[2].strip()
        cluster.address = f"dask://{cluster.address}"
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        for child in (*cluster.workers, scheduler):
            # Nothing is lost with them, and to leave politely they would wait for each other.
            child.kill()
            child.wait()


def _started(command: list[str], log: Path, more: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            # What a worker that is killed leaves behind is removed with everything else. And as for
            # a program in a Workplace, libraries for this processor are known to load.
            env={
                **os.environ,
                "TMPDIR": str(log.parent),
                "TORCHINDUCTOR_VEC_ISA_OK": "1",
                **more,
            },
        )
