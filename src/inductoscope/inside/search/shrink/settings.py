"""Leaves out what the compile does not need: options, settings, dynamic shapes, gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.program_state import as_when_fresh, to_be_made
from inductoscope.inside.search.shrink.shrink_pass import Proposals, ShrinkPass, Subject


def _measure(candidate: Candidate) -> int:
    settings = len(candidate.options) + len(to_be_made(candidate.config))
    return settings + bool(candidate.dynamic) + len(candidate.marks) + candidate.backward


def _propose(subject: Subject) -> Proposals:
    candidate = subject.candidate
    while attempts := list(_plainer(candidate)):
        found = yield attempts
        if found is None:
            return None
        candidate = attempts[found]
    return None


def _plainer(candidate: Candidate) -> Iterator[Candidate]:
    made = to_be_made(candidate.config)
    if candidate.options and made:
        yield replace(candidate, options={}, config=as_when_fresh(candidate.config, *made))
    for name in candidate.options:
        yield replace(candidate, options=_without(dict(candidate.options), name))
    for name in made:
        yield replace(candidate, config=as_when_fresh(candidate.config, name))
    if candidate.dynamic:
        yield replace(candidate, dynamic=None)
    for mark in candidate.marks:
        yield replace(candidate, marks=tuple(m for m in candidate.marks if m is not mark))
    if candidate.backward:
        yield replace(candidate, backward=False).with_calls_changed(_without_gradients)


def _without(settings: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in settings.items() if key != name}


def _without_gradients(inputs: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in inputs)


PASS = ShrinkPass("settings", "leaving out settings", _measure, _propose)
