"""Evidence that memory is the cause of a failure: out-of-bounds accesses and races."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from inductoscope.doctor.failure import NAN, SIGNAL, WRONG, Failure
from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.guarded_memory import (
    GuardedMemory,
    MemoryFault,
    first_memory_fault,
    is_dense,
)
from inductoscope.inside.compare.kernels import KernelWatch
from inductoscope.inside.compare.values import Outcome, run
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.failure_signature import failure_of_signal
from inductoscope.inside.search.forks import ForkAnswer, Forks, Work
from inductoscope.inside.search.oracle import compiled, compiling, run_compiled
from inductoscope.inside.search.placement import is_for_gpu, placed
from inductoscope.inside.search.sanitizers import run_sanitized
from inductoscope.recording.codec import decode
from inductoscope.torch_facts import stages

# Aspects of a failure that the contents of memory can explain.
_OF_VALUES = ("value", "nan")
_RUNS = 6


@dataclass(frozen=True)
class MemoryEvidence:
    """The memory fault, if there is one, and sentences for a report."""

    fault: MemoryFault | None = None
    texts: tuple[str, ...] = ()


def memory_work(candidate: Candidate, failure: Failure) -> Work | None:
    """Return fork work that checks a wrong result for memory faults; `evidence_of` reads it.

    Returns None where memory is not suspected.
    """
    if candidate.device:
        return lambda: _device_evidence(placed(candidate))
    if is_for_gpu(candidate) or failure.aspect not in _OF_VALUES:
        return None
    return lambda: _evidence_on_cpu(candidate)


def evidence_of(answer: ForkAnswer) -> MemoryEvidence:
    if answer.signal is not None:
        text = f"with other bytes in and around its buffers, {failure_of_signal(answer).text}"
        return MemoryEvidence(texts=(text,))
    return decode(MemoryEvidence, answer.result) if answer.result else MemoryEvidence()


def may_depend_on_memory(candidate: Candidate, failure: Failure) -> bool:
    """Check whether filled memory may reveal a failure; GPU runs always use filled memory."""
    is_of_values = failure.kind in (WRONG, NAN) and failure.aspect in _OF_VALUES
    return is_of_values and not candidate.guarded and not is_for_gpu(candidate)


def of_changed_memory(candidate: Candidate, forks: Forks) -> MemoryEvidence:
    """Check whether the result changes with the contents of memory, and find the kernel."""
    return evidence_of(forks.ask(lambda: _evidence_on_cpu(candidate)))


def sanitizer_evidence(
    candidate: Candidate, failure: Failure, forks: Forks, folder: Path
) -> tuple[str, ...]:
    """Return AddressSanitizer's findings on a crash in a kernel; none for other failures.

    This is the slowest check: it compiles the kernel again, in a process that starts slowly.
    """
    if is_for_gpu(candidate) or failure.kind != SIGNAL or failure.stage != stages.RUNTIME:
        return ()
    try:
        found = run_sanitized(candidate, forks, folder / f"sanitized-{os.getpid()}")
    except ToolFailure as error:
        return (f"AddressSanitizer was not asked: {error}",)
    return tuple(f"AddressSanitizer: {finding.text}" for finding in found[:2])


# --- in a fork ------------------------------------------------------------------------------------


def _evidence_on_cpu(candidate: Candidate) -> MemoryEvidence:
    """Compile the candidate once, and call it with different bytes in memory.

    Its weights are passed as inputs, so that they lie in such memory as well.
    """
    plain = replace(candidate, guarded=False, constants=frozenset())

    def prepare() -> Callable[..., Any]:
        function = compiled(plain)
        if plain.earlier is not None:
            run(function, plain.earlier, backward=plain.backward)
        return function

    with compiling(plain):
        fault = first_memory_fault(prepare, plain.inputs, backward=plain.backward)
    return MemoryEvidence(fault, () if fault is None else (fault.text,))


def _device_evidence(candidate: Candidate) -> MemoryEvidence:
    """Check for out-of-bounds accesses, and for results that change from run to run."""
    texts = [*_in_guarded_memory(candidate), *_of_repeated_runs(candidate)]
    return MemoryEvidence(texts=tuple(texts))


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
    if _has_new_nan(eager, outcome):
        with compiling(candidate, in_filled_memory=False):
            unguarded = run_compiled(candidate, compiled(candidate))
        if not _has_new_nan(eager, unguarded):
            return [
                "it reads memory outside its buffers, or memory that was never written: with NaN "
                "there, its result becomes NaN"
            ]
    return []


def _has_new_nan(eager: Outcome, outcome: Outcome) -> bool:
    return any(_has_nan(two) and not _has_nan(one) for one, two in _float_pairs(eager, outcome))


def _has_nan(value: torch.Tensor) -> bool:
    return bool(value.isnan().any())


def _float_pairs(one: Outcome, two: Outcome) -> list[tuple[torch.Tensor, torch.Tensor]]:
    pairs = zip(one.named_values(), two.named_values(), strict=False)
    return [
        (mine, other)
        for (_, mine), (_, other) in pairs
        if all(isinstance(v, torch.Tensor) and v.is_floating_point() for v in (mine, other))
    ]


def _of_repeated_runs(candidate: Candidate) -> list[str]:
    with compiling(candidate, in_filled_memory=False):
        function = compiled(candidate)
        different = _different([run_compiled(candidate, function) for _ in range(_RUNS)])
    if different < 2:
        return []
    eager = as_function(candidate.module)
    runs = [run(eager, candidate.inputs, backward=candidate.backward) for _ in range(_RUNS)]
    if _different(runs) > 1:
        return []  # Atomic additions, for example, have no fixed order in eager either.
    return [
        f"{_RUNS} runs of the compiled graph on the same inputs gave {different} different "
        f"results, {_RUNS} in eager the same one: a race between threads, or memory that was never "
        "written"
    ]


def _different(outcomes: Sequence[Outcome]) -> int:
    """Count the distinct results."""
    first: list[Outcome] = []
    for outcome in outcomes:
        if not any(_is_identical(outcome, other) for other in first):
            first.append(outcome)
    return len(first)


def _is_identical(one: Outcome, two: Outcome) -> bool:
    return all(
        torch.equal(mine.nan_to_num(), other.nan_to_num()) for mine, other in _float_pairs(one, two)
    )
