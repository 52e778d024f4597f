"""The choices in logs: for each answer, its groups of choices with their analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.hangs.choices.analysis import Analysis, Analyst
from inductoscope.hangs.choices.choice_filter import ChoiceFilter
from inductoscope.hangs.choices.stuck_choices import choices_of
from inductoscope.hangs.logs.answer import Answer
from inductoscope.hangs.logs.groups import Group


@dataclass(frozen=True)
class AnalysedGroup:
    """The choices of one operation, as a log shows them, and what they tell."""

    group: Group
    analysis: Analysis


@dataclass(frozen=True)
class AnalysedAnswer:
    """What became of one program, and what its choices tell."""

    answer: Answer
    groups: tuple[AnalysedGroup, ...]

    @property
    def filter(self) -> ChoiceFilter | None:
        """What leaves out the stuck choices of the first group where that is known."""
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
