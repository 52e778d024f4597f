"""Runs the program with its kernels timed, and profiles what was measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.capture.launch import run_recorded
from inductoscope.errors import ToolFailure
from inductoscope.model.entities import Ending
from inductoscope.model.fold import load
from inductoscope.profiling.kernels.agent import AGENT
from inductoscope.profiling.kernels.eager import EagerTimes, measure_eager
from inductoscope.profiling.kernels.kernel_times import read_kernel_times
from inductoscope.profiling.kernels.profile import Profile, build_profile
from inductoscope.profiling.kernels.work import FUNCTIONS
from inductoscope.profiling.machine.limits import MachineLimits
from inductoscope.profiling.machine.measuring import is_measured, limits_of
from inductoscope.profiling.orders import QUIET, Orders
from inductoscope.profiling.timings import FOLDER, ProcessTimes, read_times

Say = Callable[[str], None]

# Cached graphs have no IR to compute floors from.
_NO_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


@dataclass(frozen=True)
class ProfiledRun:
    """A profile, and the same graphs in eager."""

    profile: Profile
    eager: tuple[EagerTimes, ...] = ()


def run_profiled(command: Sequence[str], folder: Path, *, stdout: int | None = None) -> Ending:
    """Run the program as `run --fresh` does, with its calls and kernels timed."""
    variables = {**_NO_CACHES, **QUIET, **Orders(records=True).environment(AGENT)}
    return run_recorded(command, folder, fresh=True, variables=variables, stdout=stdout)


def profile_of(folder: Path, *, measure_anew: bool, with_eager: bool, say: Say) -> ProfiledRun:
    """The profile of a run; measures the machine if its limits are not known yet."""
    calls = read_times(folder / FOLDER)
    kernels = read_kernel_times(folder / FOLDER)
    notes: list[str] = []
    limits = _Limits(calls, measure_anew, say, notes)
    recording = load(folder)
    profile = build_profile(recording, calls, kernels, limits.of)
    eager: tuple[EagerTimes, ...] = ()
    if with_eager and profile.graphs:
        say("timing the same graphs in eager")
        eager = measure_eager(recording, limits.threads, notes)
    return ProfiledRun(replace(profile, notes=(*profile.notes, *notes)), eager)


class _Limits:
    """The limits of this machine's devices, with the program's number of threads."""

    def __init__(
        self, calls: Sequence[ProcessTimes], anew: bool, say: Say, notes: list[str]
    ) -> None:
        self.threads = max((process.threads for process in calls), default=0)
        self._torch = next((process.torch for process in calls), "")
        self._anew, self._say, self._notes = anew, say, notes

    def of(self, device: str) -> MachineLimits | None:
        """The limits of a device; None if they cannot be measured, with a note."""
        if self._anew or not is_measured(device, self.threads, self._torch):
            self._say(f"measuring what this machine can do ({device}), once")
        try:
            found, path = limits_of(device, self.threads, self._torch, FUNCTIONS, anew=self._anew)
        except ToolFailure as failure:
            self._notes.append(str(failure))
            return None
        if path is None:
            self._notes.append("The limits of the machine cannot be kept: its folder is read-only.")
        return found
