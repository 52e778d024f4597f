"""Whether autotuning pays: the program with what was chosen, and with the library, in turns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope.profiling.autotuning.searches import Searches
from inductoscope.profiling.overruling import overruling
from inductoscope.profiling.settings.trials import SettingTrial, SettingTrials, try_settings
from inductoscope.profiling.statistics import FASTER, SLOWER
from inductoscope.profiling.turns import Say, Variant

# The same program, with the library's kernel wherever there was a choice.
WITHOUT_TUNING = Variant(
    "without autotuning",
    code=overruling(
        {"max_autotune": False, "max_autotune_gemm": False, "max_autotune_pointwise": False}
    ),
)


@dataclass(frozen=True)
class TuningResult:
    """What the searches chose, and what that is worth in the program."""

    searches: Searches
    trials: SettingTrials | None = None

    @property
    def without(self) -> SettingTrial | None:
        """The program without tuning."""
        return self.trials.trials[0] if self.trials is not None else None

    @property
    def gain(self) -> float | None:
        """Seconds that tuning saves per compiled call; None if no difference can be shown."""
        without, trials = self.without, self.trials
        if trials is None or without is None or without.comparison is None:
            return None
        if without.comparison.verdict not in (FASTER, SLOWER):
            return None
        return without.seconds.median - trials.base.seconds.median

    @property
    def pays_after(self) -> int | None:
        """Calls after which the search has paid; None if it never does, or that is not known."""
        if self.gain is None or self.gain <= 0:
            return None
        return math.ceil(self.searches.seconds / self.gain)


def examine_tuning(
    command: Sequence[str],
    searches: Searches,
    folder: Path,
    *,
    turns: int,
    seconds: float,
    say: Say,
) -> TuningResult:
    """Run the program with what was chosen and without tuning, in turns."""
    if not searches.were_made:
        return TuningResult(searches)
    trials = try_settings(command, [WITHOUT_TUNING], folder, turns=turns, seconds=seconds, say=say)
    return TuningResult(searches, trials)
