"""Analysis of stuck choices: the condition that separates them, likely causes, workarounds.

`logs`, `run` and the doctor all use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from inductoscope.hangs.logs.program import Group

if TYPE_CHECKING:
    from inductoscope.torch_facts.triton_kernels import KernelFile


_MOST_NAMES = 8


@dataclass(frozen=True)
class Comparison:
    """Stuck choices against finished ones."""

    # Conditions that separate them, the simplest first; else the one that comes closest.
    conditions: tuple[ChoiceCondition, ...]
    # The best fitting first.
    causes: tuple[Cause, ...]
    # Leaves out what the first condition holds for; None unless it separates.
    filter: ChoiceFilter | None


@dataclass(frozen=True)
class Analysis:
    """Everything known about the stuck choices."""

    choices: StuckChoices
    # The choices with what their kernel files add, in the same order.
    stuck: tuple[Suspect, ...]
    finished: tuple[Suspect, ...]
    comparison: Comparison
    # The file of a stuck kernel; None if no file is readable here.
    kernel: KernelFile | None
    # Files of stuck kernels that are not on this machine.
    missing_files: tuple[str, ...]

    @property
    def conditions(self) -> tuple[ChoiceCondition, ...]:
        return self.comparison.conditions

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.comparison.causes

    def filter_for(self, condition: ChoiceCondition) -> ChoiceFilter:
        """The filter that leaves out the choices a condition holds for."""
        return _filter(condition, self.stuck)

    @property
    def lines(self) -> list[str]:
        """Summarise the stuck choices and their common conditions in a few lines of text."""
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


Key = tuple[tuple[str, ...], tuple[str, ...]]


class Analyst:
    """Analyses one set of choices after another; reads and compares nothing twice.

    Many ranks mostly have the same choices, and comparing them takes most of the time.
    """

    def __init__(self) -> None:
        self._files = KernelFiles()
        self._compared: dict[Key, Comparison] = {}

    def analyse(self, choices: StuckChoices) -> Analysis:
        """Analyse one set of choices, or reuse an earlier analysis."""
        files = self._files
        stuck = tuple(map(files.suspect, choices.stuck))
        finished = tuple(map(files.suspect, choices.finished))
        key = (tuple(c.text for c in choices.stuck), tuple(c.text for c in choices.finished))
        if key not in self._compared:
            self._compared[key] = _compare(stuck, finished)
        kernel = next(filter(None, map(files.kernel, choices.stuck)), None)
        missing = files.missing(choices.stuck)
        return Analysis(choices, stuck, finished, self._compared[key], kernel, missing)


def analyse(choices: StuckChoices) -> Analysis:
    """Analyse one set of choices."""
    return Analyst().analyse(choices)


def _compare(stuck: Sequence[Suspect], finished: Sequence[Suspect]) -> Comparison:
    # A choice without a configuration, such as a library kernel, cannot be compared.
    known = [suspect for suspect in finished if suspect.configuration]
    conditions = contrast([s.configuration for s in stuck], [s.configuration for s in known])
    causes = likely_causes(stuck, known, conditions)
    separates = bool(stuck and conditions and conditions[0].separates)
    filter_ = _filter(conditions[0], stuck) if separates else None
    return Comparison(tuple(conditions), tuple(causes), filter_)


def _filter(condition: ChoiceCondition, stuck: Sequence[Suspect]) -> ChoiceFilter:
    device = next((suspect.device for suspect in stuck if suspect.device), "")
    return filter_for(condition, [s.configuration for s in stuck], device=device)


# --- The choices in logs: for each answer, its groups of choices with their analysis --------------


@dataclass(frozen=True)
class AnalysedGroup:
    """The choices of one operation, as a log shows them, with their analysis."""

    group: Group
    analysis: Analysis


@dataclass(frozen=True)
class AnalysedAnswer:
    """Answer for one program, with the analysis of its choices."""

    answer: Answer
    groups: tuple[AnalysedGroup, ...]

    @property
    def filter(self) -> ChoiceFilter | None:
        """The filter for the first group with a known condition."""
        filters = (group.analysis.comparison.filter for group in self.groups)
        return next(filter(None, filters), None)


def analyse_answers(answers: Sequence[Answer]) -> list[AnalysedAnswer]:
    """The answers with their choices analysed."""
    analyst = Analyst()
    return [
        AnalysedAnswer(
            answer,
            tuple(AnalysedGroup(g, analyst.analyse(choices_of(g))) for g in answer.groups),
        )
        for answer in answers
    ]
