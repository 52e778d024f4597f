"""The choices in logs: for each answer, its groups of choices with their analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.hangs.choices.analysis import Analysis, Analyst
from inductoscope.hangs.choices.choice_filter import ChoiceFilter
from inductoscope.hangs.choices.sorted_choices import choices_of
from inductoscope.hangs.logs.answer import Answer
from inductoscope.hangs.logs.groups import Group


@dataclass(frozen=True)
class AnalysedGroup:
    """The choices of one operation, as a log shows them, with their analysis."""

    group: Group
    analysis: Analysis


@dataclass(frozen=True)
class AnalysedAnswer:
    """What happened to one program, with the analysis of its choices."""

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
