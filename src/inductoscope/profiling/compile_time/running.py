"""Runs a program to see where its compile time goes: cold in a new private cache, then warm."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.capture import private_cache
from inductoscope.capture.launch import run_recorded
from inductoscope.model.entities import Ending
from inductoscope.model.fold import load
from inductoscope.profiling.compile_time.compile_cost import CompileCost
from inductoscope.profiling.compile_time.growth import StageGrowth, growth_of_all
from inductoscope.profiling.compile_time.recorded_costs import RecordedCosts, recorded_costs
from inductoscope.recording.location import create_recording

Say = Callable[[str], None]

_WARM = "warm"
# The program itself and its native compilers keep the cores busy, too.
_BUSY = 1.5


@dataclass(frozen=True)
class ColdOrWarmRun:
    """A run, how it ended, and where its compile time went."""

    recording: str
    ending: Ending
    costs: RecordedCosts


@dataclass(frozen=True)
class MeasuredGrowth:
    """A graph compiled at several sizes."""

    compile: str
    # How the copies of the graph are joined.
    joined: str
    costs: tuple[CompileCost, ...] = ()
    # What next to nothing costs.
    least: CompileCost | None = None
    # Why it could not be measured.
    error: str = ""

    @property
    def stages(self) -> list[StageGrowth]:
        """How each stage grows, the slowest first."""
        finished = [cost for cost in self.costs if not cost.ended_in]
        return growth_of_all(finished, self.least)


@dataclass(frozen=True)
class CompileProfile:
    """Where compile time goes."""

    cold: ColdOrWarmRun
    # None if the cold run failed, or compiled nothing.
    warm: ColdOrWarmRun | None = None
    growth: MeasuredGrowth | None = None
    # How many processes wanted a core while it ran, and how many cores there are.
    load: float = 0.0
    cores: int = 1

    @property
    def is_busy(self) -> bool:
        """Whether other programs took so much of the machine that times say little."""
        return self.load > _BUSY * self.cores

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compiled."""
        return not self.cold.costs.compiles


def profile_compile(
    command: Sequence[str], folder: Path, *, stdout: int | None, say: Say
) -> CompileProfile:
    """Run the program twice, recorded: with an empty cache, and with what that run left there.

    The second run's output is not shown: it is the same program.
    """
    with tempfile.TemporaryDirectory(prefix="inductoscope-cache-") as cache:
        variables = private_cache.environment(Path(cache))
        cold = _run(command, folder, variables, stdout)
        if cold.ending.exit_code != 0 or not cold.costs.compiles:
            return _with_load(CompileProfile(cold))
        say("running it again, served from the cache")
        place = create_recording(list(command), output=folder / _WARM)
        with open(os.devnull, "wb") as nowhere:
            warm = _run(command, place, variables, nowhere.fileno(), earlier=folder)
    return _with_load(CompileProfile(cold, warm))


def _with_load(profile: CompileProfile) -> CompileProfile:
    return replace(profile, load=round(os.getloadavg()[0], 1), cores=os.cpu_count() or 1)


def _run(
    command: Sequence[str],
    folder: Path,
    variables: dict[str, str],
    stdout: int | None,
    earlier: Path | None = None,
) -> ColdOrWarmRun:
    ending = run_recorded(command, folder, variables=variables, stdout=stdout)
    before = load(earlier) if earlier is not None else None
    return ColdOrWarmRun(str(folder), ending, recorded_costs(load(folder), before))
