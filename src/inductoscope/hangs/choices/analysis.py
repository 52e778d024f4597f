"""Analysis of stuck choices: the condition that separates them, likely causes, workarounds.

`logs`, `run` and the doctor all use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from inductoscope.hangs.choices.causes import Cause, likely_causes
from inductoscope.hangs.choices.contrast import ChoiceCondition, contrast
from inductoscope.hangs.choices.filters import ChoiceFilter, filter_for
from inductoscope.hangs.choices.suspects import (
    StuckChoices,
    Suspect,
    choices_of,
    kernel_of,
    missing_files,
    suspect_of,
)
from inductoscope.hangs.logs.answers import Answer
from inductoscope.torch_facts.log_choices import Choice

if TYPE_CHECKING:
    from inductoscope.torch_facts.triton_kernels import KernelFile


_MOST_NAMES = 8


@dataclass(frozen=True)
class Analysis:
    """The results on stuck choices: condition, causes, workarounds."""

    choices: StuckChoices
    # The choices with data from their kernel files, in the same order.
    stuck: tuple[Suspect, ...]
    finished: tuple[Suspect, ...]
    # Conditions that separate the choices, the simplest first; else the closest one.
    conditions: tuple[ChoiceCondition, ...]
    # Possible causes, the best fit first.
    causes: tuple[Cause, ...]
    # The file of a stuck kernel; None if no file is readable here.
    kernel: KernelFile | None
    # Files of stuck kernels that are not on this machine.
    missing_files: tuple[str, ...]
    # Excludes the choices that the first condition holds for; None unless it separates.
    filter: ChoiceFilter | None = None

    def filter_for(self, condition: ChoiceCondition) -> ChoiceFilter:
        """Return the filter that excludes the choices for which a condition holds."""
        device = next((suspect.device for suspect in self.stuck if suspect.device), "")
        return filter_for(condition, [s.configuration for s in self.stuck], device=device)

    @property
    def lines(self) -> list[str]:
        """Summarize the stuck choices and their common conditions in a few lines."""
        choices = self.choices
        of = f" of {choices.operation}" if choices.operation else ""
        waiting = f", {len(choices.waiting)} waiting for a thread" if choices.waiting else ""
        counts = f"{len(choices.stuck)} stuck, {len(choices.finished)} finished{waiting}"
        names = ", ".join(c.short_name or c.kind for c in choices.stuck[:_MOST_NAMES])
        more = " …" if len(choices.stuck) > _MOST_NAMES else ""
        return [
            f"choices{of}: {counts}",
            *(f"{condition.text}: {condition.counts}" for condition in self.conditions),
            f"stuck: {names}{more}",
        ]


def analyse(choices: StuckChoices) -> Analysis:
    return replace(_analysed(choices.stuck, choices.finished), choices=choices)


# Ranks mostly share their choices, and comparing choices takes most of the time.
@lru_cache(maxsize=64)
def _analysed(stuck: tuple[Choice, ...], finished: tuple[Choice, ...]) -> Analysis:
    suspects = tuple(map(suspect_of, stuck))
    others = tuple(map(suspect_of, finished))
    # A choice without a configuration, such as a library kernel, cannot be compared.
    known = [suspect for suspect in others if suspect.configuration]
    conditions = contrast([s.configuration for s in suspects], [s.configuration for s in known])
    found = Analysis(
        StuckChoices("", "", stuck, finished),
        suspects,
        others,
        conditions=tuple(conditions),
        causes=tuple(likely_causes(suspects, known, conditions)),
        kernel=next(filter(None, map(kernel_of, stuck)), None),
        missing_files=missing_files(stuck),
    )
    separates = bool(stuck and conditions and conditions[0].separates)
    return replace(found, filter=found.filter_for(conditions[0])) if separates else found


def analyses_of(answer: Answer) -> list[Analysis]:
    """Return an analysis of each group of choices that an answer is about."""
    return [analyse(choices_of(group)) for group in answer.groups]
