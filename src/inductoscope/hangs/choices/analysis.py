"""Analysis of stuck choices: the condition that separates them, likely causes, workarounds.

`logs`, `run` and the doctor all use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inductoscope.hangs.choices.causes import Cause, likely_causes
from inductoscope.hangs.choices.contrast import ChoiceCondition, contrast
from inductoscope.hangs.choices.filters import ChoiceFilter, filter_for
from inductoscope.hangs.choices.suspects import (
    KernelFiles,
    StuckChoices,
    Suspect,
    choices_of,
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


class Analyst:
    """Analyzes sets of choices one by one; nothing is read or compared twice.

    Ranks mostly share their choices, and comparing choices takes most of the time.
    """

    def __init__(self) -> None:
        self._files = KernelFiles()
        self._known: dict[tuple[tuple[Choice, ...], tuple[Choice, ...]], Analysis] = {}

    def analyse(self, choices: StuckChoices) -> Analysis:
        """Analyze a set of choices, or return the earlier analysis of it."""
        key = (choices.stuck, choices.finished)
        if key not in self._known:
            self._known[key] = self._analysed(choices)
        return replace(self._known[key], choices=choices)

    def _analysed(self, choices: StuckChoices) -> Analysis:
        files = self._files
        stuck = tuple(map(files.suspect, choices.stuck))
        finished = tuple(map(files.suspect, choices.finished))
        # A choice without a configuration, such as a library kernel, cannot be compared.
        known = [suspect for suspect in finished if suspect.configuration]
        conditions = contrast([s.configuration for s in stuck], [s.configuration for s in known])
        found = Analysis(
            choices,
            stuck,
            finished,
            conditions=tuple(conditions),
            causes=tuple(likely_causes(stuck, known, conditions)),
            kernel=next(filter(None, map(files.kernel, choices.stuck)), None),
            missing_files=files.missing(choices.stuck),
        )
        separates = bool(stuck and conditions and conditions[0].separates)
        return replace(found, filter=found.filter_for(conditions[0])) if separates else found


def analyse(choices: StuckChoices) -> Analysis:
    return Analyst().analyse(choices)


@dataclass(frozen=True)
class AnalysedAnswer:
    """The answer of a log for one program, with an analysis of each group of choices."""

    answer: Answer
    analyses: tuple[Analysis, ...]

    @property
    def filter(self) -> ChoiceFilter | None:
        """Return the filter for the first group with a known condition."""
        return next(filter(None, (analysis.filter for analysis in self.analyses)), None)


def analyse_answers(answers: Sequence[Answer]) -> list[AnalysedAnswer]:
    """Analyze the choices of every answer."""
    analyst = Analyst()
    return [
        AnalysedAnswer(answer, tuple(analyst.analyse(choices_of(g)) for g in answer.groups))
        for answer in answers
    ]
