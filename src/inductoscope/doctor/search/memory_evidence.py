"""What more can be said about a failure that memory may be the cause of."""

from __future__ import annotations

import os
from pathlib import Path

from inductoscope.doctor.failure import NAN, SIGNAL, WRONG, Failure
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.device_evidence import device_evidence
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.placement import is_for_gpu
from inductoscope.doctor.search.sanitizers import run_sanitized
from inductoscope.vocabulary import stages


def memory_evidence(candidate: Candidate, failure: Failure, forks: Forks, place: Path) -> list[str]:
    """Sentences for a report; none where memory is not suspected, or nothing is found."""
    if candidate.device and failure.kind in (WRONG, NAN):
        answer = forks.ask(lambda: device_evidence(candidate))
        return [str(text) for text in answer.result or ()]
    dies_in_kernel = failure.kind == SIGNAL and failure.stage == stages.RUNTIME
    if not dies_in_kernel or is_for_gpu(candidate):
        return []
    report = run_sanitized(candidate, forks, place / f"sanitized-{os.getpid()}")
    found = [f"AddressSanitizer: {finding.text}" for finding in report.findings[:2]]
    return found or (
        [f"AddressSanitizer was not asked: {report.why_not}"] if report.why_not else []
    )
