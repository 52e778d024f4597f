"""Who else uses the machine while something is measured."""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from battery.workplace import adopt_orphans

# Shares of the machine's processor time that others may have while a clock is still believed.
MOST_OTHERS, MOST_STOLEN = 0.15, 0.05


@dataclass(frozen=True)
class Load:
    """Other load on the machine while a benchmark ran."""

    # The load average for each core when it began.
    average: float = 0.0
    # The share of all processor time that other processes of this machine used.
    others: float = 0.0
    # The share that the host gave to other machines.
    stolen: float = 0.0
    is_known: bool = True

    @property
    def disturbs(self) -> bool:
        return not self.is_known or self.others > MOST_OTHERS or self.stolen > MOST_STOLEN

    def explain(self) -> str:
        if not self.is_known:
            return "other load on the machine was not recorded"
        stolen = f", {self.stolen:.0%} was stolen by the host" if self.stolen >= 0.005 else ""
        return f"others used {self.others:.0%} of the processor time meanwhile{stolen}"


QUIET = Load()


@dataclass(frozen=True)
class _Ticks:
    """Seconds of all cores since the start of the machine, and those of this process tree."""

    busy: float
    stolen: float
    own: float
    at: float


class Watched:
    """The load is known when the watching has ended."""

    load = QUIET


@contextlib.contextmanager
def watching() -> Iterator[Watched]:
    """Watch the machine while what this process starts runs, and is waited for."""
    cores = os.cpu_count() or 1
    adopt_orphans()
    average, before, watched = os.getloadavg()[0] / cores, _look(), Watched()
    yield watched
    after = _look()
    available = max((after.at - before.at) * cores, 0.01)
    others = after.busy - before.busy - (after.own - before.own)
    watched.load = Load(
        average=round(average, 2),
        others=round(min(max(others / available, 0.0), 1.0), 3),
        stolen=round((after.stolen - before.stolen) / available, 3),
    )


def cpu_of_children() -> float:
    """Processor seconds of everything that was started from here and has ended.

    To be asked while no command runs that somebody else waits for.
    """
    _reap()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _look() -> _Ticks:
    tick = os.sysconf("SC_CLK_TCK")
    first = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, _, _, irq, softirq, stolen = (int(number) / tick for number in first[:8])
    own = time.process_time() + cpu_of_children()
    return _Ticks(user + nice + system + irq + softirq, stolen, own, time.monotonic())


def _reap() -> None:
    """Take over the times of what was left behind."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
