"""Runs the program as every rank, several at a time, and leaves no process behind.

The first rank runs alone and fills a private cache, so the others mostly have cache hits. Ranks are
started by the main thread, since they die with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.launch.environment import (
    RECORDING_VARIABLE,
    TARGET_VARIABLE,
    private_cache,
    with_parts,
    with_scope,
)
from inductoscope.preflight.rank_folder import OBJECTS, OUTPUT, TRACE, rank_folder
from inductoscope.processes.children import end_of_file, start_group
from inductoscope.processes.ending import end_child

_LOOK_EVERY = 0.05
_TAIL = 4000
_GPUS_OF_A_HOST = 8
_ENDED_BY_SIGTERM = 128 + signal.SIGTERM


@dataclass(frozen=True)
class PretendedJob:
    command: tuple[str, ...]
    world: int
    ranks: tuple[int, ...]
    folder: Path
    target: str = ""
    # The time limit of one rank, in seconds.
    seconds: float = 600.0
    at_once: int = 1

    @property
    def on_each_host(self) -> int:
        """The number of ranks per host: all, but at most eight, one per GPU."""
        if not self.target:
            return self.world
        return max(n for n in range(1, _GPUS_OF_A_HOST + 1) if self.world % n == 0)


@dataclass(frozen=True)
class RankRun:
    rank: int
    # None if the rank timed out.
    exit_code: int | None
    seconds: float
    # The last lines of its output.
    output: str

    @property
    def ended_well(self) -> bool:
        return self.exit_code == 0


def run_ranks(job: PretendedJob, say: Callable[[str], None]) -> tuple[RankRun, ...]:
    """Run all ranks of the job. None of their processes outlives the call."""
    done: list[RankRun] = []
    waiting, running = list(job.ranks), dict[int, _RunningRank]()
    with _ended_by_signal():
        try:
            while waiting or running:
                most = 1 if not done else job.at_once
                while waiting and len(running) < most:
                    rank = waiting.pop(0)
                    say(f"rank {rank}")
                    running[rank] = _RunningRank(job, rank)
                time.sleep(_LOOK_EVERY)
                for rank, one in list(running.items()):
                    ended = one.look()
                    if ended is not None:
                        done.append(ended)
                        del running[rank]
        finally:
            for one in running.values():
                one.end()
            shutil.rmtree(job.folder / OBJECTS, ignore_errors=True)
    return tuple(sorted(done, key=lambda run: run.rank))


@contextlib.contextmanager
def _ended_by_signal() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that ranks are ended first."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(_ENDED_BY_SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _RunningRank:
    """A running rank, in a process group of its own."""

    def __init__(self, job: PretendedJob, rank: int) -> None:
        self._rank = rank
        self._limit = job.seconds
        own = rank_folder(job.folder, rank)
        (own / TRACE).mkdir(parents=True, exist_ok=True)
        self._output = own / OUTPUT
        self._began = time.monotonic()
        self._child = _start(job.command, environment_of(job, rank, os.environ), self._output)

    def look(self) -> RankRun | None:
        seconds = time.monotonic() - self._began
        code = self._child.poll()
        if code is None and seconds < self._limit:
            return None
        self.end()
        return RankRun(self._rank, code, round(seconds, 3), end_of_file(self._output, _TAIL))

    def end(self) -> None:
        end_child(self._child)


def _start(
    command: Sequence[str], environment: Mapping[str, str], output: Path
) -> subprocess.Popen[bytes]:
    try:
        with output.open("wb") as file:
            return start_group(
                command, environment=environment, stdin=subprocess.DEVNULL, stdout=file
            )
    except OSError as error:
        raise ToolFailure(
            f"{error.filename or command[0]} cannot be started: {error.strerror}."
        ) from error


def environment_of(job: PretendedJob, rank: int, base: Mapping[str, str]) -> dict[str, str]:
    """Return a rank's variables: a launcher's, our start-up hook, a trace, and a cache."""
    own = rank_folder(job.folder, rank)
    found = {
        # torchrun sets this when several ranks share a host; the value enters compiled code.
        "OMP_NUM_THREADS": "1",
        **with_scope(dict(base)),
        **private_cache(job.folder / "cache"),
        RECORDING_VARIABLE: str(own),
        **with_parts("rank"),
        "TORCH_TRACE": str(own / TRACE),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank % job.on_each_host),
        "GROUP_RANK": str(rank // job.on_each_host),
        "WORLD_SIZE": str(job.world),
        "LOCAL_WORLD_SIZE": str(job.on_each_host),
        # The ranks' rendezvous store does not exist.
        "TORCH_DIST_INIT_BARRIER": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
    }
    if job.target:
        found[TARGET_VARIABLE] = job.target
    return found
