"""What more can be said about a failure that memory may be the cause of."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from inductoscope.doctor.failure import (
    NAN,
    SIGNAL,
    WRONG,
    Failure,
)
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

# What may be wrong because of what lies in memory.
_OF_VALUES = ("value", "nan")


@dataclass(frozen=True)
class MemoryEvidence:
    """What was found out, and sentences for a report."""

    fault: MemoryFault | None = None
    texts: tuple[str, ...] = ()


def memory_work(candidate: Candidate, failure: Failure) -> Work | None:
    """Work for a fork that tells what memory has to do with a wrong result; `evidence_of` reads it.

    None where memory is not suspected.
    """
    if failure.kind not in (WRONG, NAN):
        return None
    if candidate.device:
        return lambda: device_evidence(candidate)
    if is_for_gpu(candidate) or failure.aspect not in _OF_VALUES:
        return None
    return lambda: fault_of(candidate)


def evidence_of(answer: ForkAnswer, candidate: Candidate) -> MemoryEvidence:
    """What the fork found out."""
    if candidate.device:
        return MemoryEvidence(texts=tuple(str(text) for text in answer.result or ()))
    if answer.signal is not None:
        text = f"with other bytes in and around its buffers, {failure_of_signal(answer).text}"
        return MemoryEvidence(texts=(text,))
    fault = decode(MemoryFault, answer.result) if answer.result else None
    return MemoryEvidence(fault, () if fault is None else (fault.text,))


def sanitizer_evidence(
    candidate: Candidate, failure: Failure, forks: Forks, place: Path
) -> tuple[str, ...]:
    """What AddressSanitizer says of a kernel that kills its process; nothing about other failures.

    It compiles the kernel once more, in a process that starts slowly: this takes longest of all.
    """
    if is_for_gpu(candidate) or failure.kind != SIGNAL or failure.stage != stages.RUNTIME:
        return ()
    return _sanitized(candidate, forks, place)


def may_depend_on_memory(candidate: Candidate, failure: Failure) -> bool:
    """Whether other bytes around its buffers may show a failure; on a GPU they are there anyway."""
    is_of_values = failure.kind in (WRONG, NAN) and failure.aspect in _OF_VALUES
    return is_of_values and not candidate.guarded and not is_for_gpu(candidate)


def of_changed_memory(candidate: Candidate, forks: Forks) -> MemoryEvidence:
    """Whether the result changes with what lies in memory, and which kernel reads that."""
    return evidence_of(forks.ask(lambda: fault_of(candidate)), candidate)


def fault_of(candidate: Candidate) -> MemoryFault | None:
    """In a fork: the candidate is compiled once, and called with other bytes in memory.

    Its weights are inputs, so that they lie in such memory as well.
    """
    plain = replace(candidate, guarded=False, constants=frozenset())

    def prepare() -> Callable[..., Any]:
        function = compiled(plain)
        if plain.earlier is not None:
            run(function, plain.earlier, backward=plain.backward)
        return function

    with compiling(plain):
        return first_memory_fault(prepare, plain.inputs, backward=plain.backward)


def _sanitized(candidate: Candidate, forks: Forks, place: Path) -> tuple[str, ...]:
    report = run_sanitized(candidate, forks, place / f"sanitized-{os.getpid()}")
    found = tuple(f"AddressSanitizer: {finding.text}" for finding in report.findings[:2])
    why_not = f"AddressSanitizer was not asked: {report.why_not}" if report.why_not else ""
    return found or ((why_not,) if why_not else ())


# --- What only shows when a compiled graph is run in guarded memory, or several times -------------

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
