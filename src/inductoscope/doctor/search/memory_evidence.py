"""What more can be said about a failure that memory may be the cause of."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.doctor.compare.memory_check import MemoryFault, first_memory_fault
from inductoscope.doctor.compare.values import run
from inductoscope.doctor.failure import NAN, SIGNAL, WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.device_evidence import device_evidence
from inductoscope.doctor.search.failure_signature import failure_of_signal
from inductoscope.doctor.search.fork_answer import ForkAnswer, Work
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import compiled, compiling
from inductoscope.doctor.search.placement import is_for_gpu
from inductoscope.doctor.search.sanitizers import run_sanitized
from inductoscope.recording.codec import decode
from inductoscope.vocabulary import stages

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
