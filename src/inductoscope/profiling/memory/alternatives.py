"""Ways to compile the same program so that it may need less memory, each for a reason.

A function per kind of way, listed in `ALTERNATIVES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from inductoscope.profiling.memory.labels import OUTPUT, SAVED, TEMPORARY
from inductoscope.profiling.memory.profile import StepProfile
from inductoscope.profiling.overruling import overruling
from inductoscope.profiling.turns import Variant

# From mild to hard: the share of what would be saved without recomputing that may be saved.
_BUDGETS = (0.75, 0.5, 0.25, 0.0)
# Less than this, or this part of the peak, is not worth a trial.
_LEAST_BYTES = 1 << 20
_LEAST_SHARE = 0.03


@dataclass(frozen=True)
class Alternative:
    """One way, and why it may need less."""

    variant: Variant
    why: str


Proposer = Callable[[StepProfile, Mapping[str, str]], Iterator[Alternative]]


def alternatives_for(profile: StepProfile, settings: Mapping[str, str]) -> tuple[Alternative, ...]:
    """What is worth a trial; `settings` are those that the program itself has set."""
    return tuple(found for propose in ALTERNATIVES for found in propose(profile, settings))


def _is_worth_it(profile: StepProfile, *kinds: str) -> bool:
    there = sum(profile.bytes_at_peak(kind) for kind in kinds)
    return there >= max(_LEAST_BYTES, _LEAST_SHARE * profile.device.peak)


def _recompute(profile: StepProfile, settings: Mapping[str, str]) -> Iterator[Alternative]:
    """Save less for the backward pass, and compute it again there."""
    if not profile.has_backward or not _is_worth_it(profile, SAVED):
        return
    why = "the partitioner saves tensors for the backward pass that can be computed again"
    for budget in _BUDGETS:
        yield _with_code(f"torch._functorch.config.activation_memory_budget = {budget}", why)
    yield _with_code("torch._functorch.config.aggressive_recomputation = True", why)


def _reuse(profile: StepProfile, settings: Mapping[str, str]) -> Iterator[Alternative]:
    """Use memory again, where the program has switched that off."""
    if not _is_worth_it(profile, TEMPORARY, OUTPUT, SAVED):
        return
    for name in ("allow_buffer_reuse", "inplace_buffers", "reorder_for_peak_memory"):
        if settings.get(f"torch._inductor.config.{name}") == "False":
            yield _with_overruling(name, "the program has switched it off")


def _plan(profile: StepProfile, settings: Mapping[str, str]) -> Iterator[Alternative]:
    """Place temporaries otherwise."""
    if not _is_worth_it(profile, TEMPORARY):
        return
    why = "temporaries are alive at the peak"
    for name, value in (("memory_planning", True), ("reorder_for_peak_memory", False)):
        if f"torch._inductor.config.{name}" not in settings:
            change = f"torch._inductor.config.{name} = {value}"
            yield Alternative(Variant(change, {name: value}), why)


def _with_code(change: str, why: str) -> Alternative:
    module = change.partition(" ")[0].rpartition(".")[0]
    return Alternative(Variant(change, code=f"import {module}\n{change}"), why)


def _with_overruling(name: str, why: str) -> Alternative:
    change = f"torch._inductor.config.{name} = True"
    return Alternative(Variant(change, code=overruling({name: True})), why)


ALTERNATIVES: tuple[Proposer, ...] = (_recompute, _reuse, _plan)
