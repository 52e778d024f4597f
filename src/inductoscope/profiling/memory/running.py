"""Runs a program to see where its memory goes: compiled, in eager, and with what may need less."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.capture.launch import run_recorded
from inductoscope.model.entities import Ending, Recording
from inductoscope.model.fold import load
from inductoscope.profiling.memory import agent, eager_agent
from inductoscope.profiling.memory.alternatives import alternatives_for
from inductoscope.profiling.memory.observed import read_observed
from inductoscope.profiling.memory.profile import StepProfile, profiles_of
from inductoscope.profiling.memory.trials import (
    BASE,
    MemoryTrial,
    TrialLimits,
    try_alternatives,
)
from inductoscope.profiling.orders import QUIET, Orders
from inductoscope.profiling.timings import FOLDER
from inductoscope.profiling.turns import run_once

Say = Callable[[str], None]

# Cached graphs have no IR to name buffers from.
_NO_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


@dataclass(frozen=True)
class EagerSteps:
    """The same steps in eager."""

    steps: tuple[StepProfile, ...] = ()
    # Why it was not measured.
    error: str = ""

    def like(self, profile: StepProfile) -> StepProfile | None:
        """The step of the same function."""
        same = (
            step
            for step in self.steps
            if (step.step.function, step.device.device)
            == (profile.step.function, profile.device.device)
        )
        return next(same, None)

    def peak_like(self, profile: StepProfile) -> int | None:
        """The peak of the same call of the same function; of any call, where it was not traced."""
        found = self.like(profile)
        if found is None:
            return None
        return (found.peaks or {}).get(profile.step.number, found.device.peak)


@dataclass(frozen=True)
class MemoryProfile:
    """Where memory goes in a program."""

    ending: Ending
    recording: str
    steps: tuple[StepProfile, ...]
    eager: EagerSteps = EagerSteps()
    trials: tuple[MemoryTrial, ...] = ()
    # Whether no setting of torch can lower the peak by much: then none was tried.
    is_at_its_least: bool = False
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no compiled call was made."""
        return not self.steps


def profile_memory(
    command: Sequence[str],
    folder: Path,
    *,
    stdout: int | None,
    limits: TrialLimits,
    with_eager: bool,
    say: Say,
) -> MemoryProfile:
    """Run the program recorded with its memory traced, then what it is compared with."""
    variables = {**_NO_CACHES, **QUIET, **Orders(records=True).environment(agent.AGENT)}
    ending = run_recorded(command, folder, fresh=True, variables=variables, stdout=stdout)
    recording = load(folder)
    seen = read_observed(folder / FOLDER)
    steps = profiles_of(seen, recording)
    notes = tuple(dict.fromkeys(note for process in seen for note in process.notes))
    found = MemoryProfile(ending, str(folder), steps, notes=notes)
    if not steps or ending.exit_code != 0:
        return found
    with tempfile.TemporaryDirectory(prefix="inductoscope-memory-") as place:
        eager = _in_eager(command, Path(place), limits, say) if with_eager else EagerSteps()
        alternatives = alternatives_for(steps[0], _settings(recording))
        trials: tuple[MemoryTrial, ...] = ()
        if alternatives and limits.turns:
            trials = try_alternatives(
                command, steps[0], seen, alternatives, Path(place), limits, say
            )
    return MemoryProfile(ending, str(folder), steps, eager, trials, not alternatives, notes)


def _in_eager(command: Sequence[str], place: Path, limits: TrialLimits, say: Say) -> EagerSteps:
    say("measuring memory in eager")
    run = run_once(
        command,
        type(BASE)("in eager", variables=QUIET),
        place / "eager",
        cache=place / "eager-cache",
        seconds=limits.seconds,
        agent=eager_agent.AGENT,
    )
    if run.exit_code != 0:
        how = "took too long" if run.exit_code is None else f"ended with code {run.exit_code}"
        return EagerSteps(error=f"the program {how} in eager")
    steps = profiles_of(read_observed(place / "eager" / FOLDER))
    return EagerSteps(steps, "" if steps else "no step was traced in eager")


def _settings(recording: Recording) -> dict[str, str]:
    """Settings that the program itself has made, in any of its compiles."""
    found: dict[str, str] = {}
    for compile_ in recording.compiles:
        if compile_.settings is not None:
            found |= compile_.settings.config
    return found
