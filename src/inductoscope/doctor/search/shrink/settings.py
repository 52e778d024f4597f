"""Drops what the failure does not need of how it is compiled: options, settings, dynamic shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.program_settings import as_when_fresh, to_be_made


def shrink_settings(candidate: Candidate, failure: Failure, oracle: Oracle) -> Candidate:
    """The candidate compiled in the plainest way that shows the failure."""
    attempts = list(_plainer(candidate))
    found = oracle.first(attempts, failure)
    while found is not None:
        candidate = attempts[found]
        attempts = list(_plainer(candidate))
        found = oracle.first(attempts, failure)
    return candidate


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
    if candidate.backward:
        yield replace(candidate, backward=False, inputs=_without_gradients(candidate.inputs))


def _without(settings: dict[str, object], name: str) -> dict[str, object]:
    return {key: value for key, value in settings.items() if key != name}


def _without_gradients(inputs: tuple[object, ...]) -> tuple[object, ...]:
    return tuple(value.detach() if isinstance(value, torch.Tensor) else value for value in inputs)
