"""What only shows when a compiled graph is run in guarded memory, or several times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from inductoscope.doctor.compare.graphs import as_function
from inductoscope.doctor.compare.guarded_memory import GuardedMemory, is_dense
from inductoscope.doctor.compare.kernels import KernelWatch
from inductoscope.doctor.compare.values import Outcome, run
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.oracle import compiled, compiling, run_compiled
from inductoscope.doctor.search.placement import placed

_RUNS = 6


def device_evidence(candidate: Candidate) -> list[str]:
    """In a fork: accesses out of bounds, and results that change from run to run."""
    candidate = placed(candidate)
    return [*_in_guarded_memory(candidate), *_of_repeated_runs(candidate)]


def _in_guarded_memory(candidate: Candidate) -> list[str]:
    memory = GuardedMemory(keeps_blocks=True)
    inputs = tuple(
        memory.guarded(value, f"input {number}") if is_dense(value) else value
        for number, value in enumerate(candidate.inputs)
    )
    there = replace(candidate, inputs=inputs)
    eager = run(as_function(there.module), there.inputs, backward=there.backward)
    watch = KernelWatch(compare=False, on_kernel=memory.note)
    with compiling(there, in_filled_memory=False), watch.watching(), memory.active():
        outcome = run_compiled(there, compiled(there))
    if memory.overrun:
        return [f"{memory.overrun} (every buffer lay in guarded memory)"]
    if _has_new_nan(eager, outcome) and not _has_new_nan(eager, _unguarded(candidate)):
        return [
            "it reads memory outside its buffers, or memory that was never written: with NaN "
            "there, its result becomes NaN"
        ]
    return []


def _unguarded(candidate: Candidate) -> Outcome:
    with compiling(candidate, in_filled_memory=False):
        return run_compiled(candidate, compiled(candidate))


def _has_new_nan(eager: Outcome, outcome: Outcome) -> bool:
    pairs = zip(eager.named_values(), outcome.named_values(), strict=False)
    return any(_is_nan_in(two) and not _is_nan_in(one) for (_, one), (_, two) in pairs)


def _is_nan_in(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.dtype.is_floating_point
        and bool(value.isnan().any())
    )


def _of_repeated_runs(candidate: Candidate) -> list[str]:
    with compiling(candidate, in_filled_memory=False):
        function = compiled(candidate)
        different = _different([run_compiled(candidate, function) for _ in range(_RUNS)])
    if different < 2:
        return []
    eager = as_function(candidate.module)
    runs = [run(eager, candidate.inputs, backward=candidate.backward) for _ in range(_RUNS)]
    if _different(runs) > 1:
        return []  # Atomic additions, say, whose order is not fixed in eager either.
    return [
        f"{_RUNS} runs of the compiled graph on the same inputs gave {different} different "
        f"results, {_RUNS} in eager the same one: a race between threads, or memory that was never "
        "written"
    ]


def _different(outcomes: Sequence[Outcome]) -> int:
    return sum(
        all(not _is_identical(one, other) for other in outcomes[:number])
        for number, one in enumerate(outcomes)
    )


def _is_identical(one: Outcome, two: Outcome) -> bool:
    pairs: Sequence[Any] = list(zip(one.named_values(), two.named_values(), strict=False))
    return all(
        torch.equal(mine.nan_to_num(), other.nan_to_num())
        for (_, mine), (_, other) in pairs
        if isinstance(mine, torch.Tensor) and mine.dtype.is_floating_point
    )
