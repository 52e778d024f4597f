"""Finds the axes that a failure needs, by switching each one off in a fork."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from inductoscope.doctor.delta_debugging import last_needed
from inductoscope.doctor.failure import HANG, Failure, Location, SuppressingAxis
from inductoscope.inside.search.axes import AXES, Axis, Fuel, Situation
from inductoscope.inside.search.candidate import Candidate, CandidateTrial, special_flow
from inductoscope.inside.search.failure_signature import failure_of_answer
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import EagerFails, examine


def relevant_axes(candidate: Candidate, failure: Failure, location: Location) -> list[Axis]:
    """Return the axes worth trying."""
    situation = situation_of(candidate, location)
    axes = [axis for axis in AXES if axis.is_relevant(situation)]
    if failure.kind == HANG:
        # Each axis that does not help costs the whole time limit.
        axes = [axis for axis in axes if axis.stage == location.stage]
    return axes


def situation_of(candidate: Candidate, location: Location) -> Situation:
    """Return the facts about the candidate that decide which axes can matter."""
    tensors = [value for value in candidate.inputs if isinstance(value, torch.Tensor)]
    devices = [candidate.device] if candidate.device else [each.device for each in tensors]
    return Situation(
        devices=frozenset(torch.device(each).type for each in devices),
        dtypes=frozenset(str(tensor.dtype) for tensor in tensors),
        settings={**candidate.options, **candidate.config},
        flow=special_flow(candidate),
        is_dynamic=bool(candidate.dynamic),
        stage=location.stage,
        kernel=location.kernel,
    )


def find_suppressing_axes(
    candidate: Candidate, failure: Failure, axes: Sequence[Axis], forks: Forks
) -> list[SuppressingAxis]:
    """Return the axes without which the failure vanishes, each with its application."""
    found = []
    tried = forks.ask_all([TrialWithout(candidate, axis) for axis in axes])
    for axis, answer in zip(axes, tried, strict=True):
        if not answer.result or answer.result["failure"] is not None:
            continue
        if not answer.result["names"]:
            continue  # No permit was asked for, so the axis is not the reason.
        name = _last_application(candidate, failure, axis, answer.result["names"], forks)
        found.append(suppressing(axis, name))
    return found


def suppressing(axis: Axis, application: str) -> SuppressingAxis:
    """Convert an axis that suppresses a failure into plain data."""
    return SuppressingAxis(
        axis.name,
        axis.stage,
        axis.title,
        application,
        rank=axis.rank,
        rewrites_graph=axis.rewrites_graph,
        names_passes=axis.names_passes,
        names_operations=axis.names_operations,
    )


def _last_application(
    candidate: Candidate, failure: Failure, axis: Axis, names: list[str], forks: Forks
) -> str:
    """Find the application with which the failure first appears, by limiting fuel."""
    if len(names) == 1 or failure.kind == HANG:
        return names[0] if len(names) == 1 else ""

    # Permitting one application may change which others are asked for.
    asked: dict[int, list[str]] = {}

    def fail(amounts: Sequence[int]) -> list[bool]:
        answers = forks.ask_all([TrialWithout(candidate, axis, amount) for amount in amounts])
        for amount, answer in zip(amounts, answers, strict=True):
            asked[amount] = answer.result["names"] if answer.result else []
        found = map(failure_of_answer, answers)
        return [each is not None and each.is_same_as(failure) for each in found]

    number = last_needed(len(names), fail, forks.guesses)
    is_shown = number in asked or fail([number])[0]
    return asked[number][number - 1] if is_shown and len(asked[number]) >= number else ""


@dataclass(frozen=True)
class TrialWithout(CandidateTrial):
    """A trial of the candidate with only the first `amount` applications of an axis."""

    axis: Axis
    amount: int = 0

    def __call__(self) -> dict[str, object]:
        fuel = Fuel(self.amount)
        try:
            failure = examine(self.candidate, lambda: self.axis.switch(fuel))
        except EagerFails:
            return {"failure": None, "names": []}
        return {"failure": failure, "names": fuel.names}
