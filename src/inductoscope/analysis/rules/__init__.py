"""Rules that read a recording and report what is wrong with it: one file per symptom.

A new rule is one file with a `check` function and one line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from inductoscope.analysis.rules import (
    cache_hits,
    compile_error,
    crash,
    exit_code,
    graph_breaks,
    incomplete_recording,
    narrow_value,
    nothing_recorded,
    out_of_bounds,
    part_failed,
    program_failed,
    ran_in_eager,
    recompiles,
    stall,
    view_off,
)
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording

Rule = Callable[[Recording], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    program_failed.check,
    compile_error.check,
    stall.check,
    crash.check,
    part_failed.check,
    narrow_value.check,
    out_of_bounds.check,
    ran_in_eager.check,
    graph_breaks.check,
    recompiles.check,
    incomplete_recording.check,
    view_off.check,
    exit_code.check,
    nothing_recorded.check,
    cache_hits.check,
)

# The rules that say why a program ended as it did.
ENDINGS = ("program_failed", "crash")
# The rules that say why a program ran, but not compiled.
UNCOMPILED = ("ran_in_eager",)


def diagnose(recording: Recording) -> list[Finding]:
    """All findings, problems first."""
    found = [finding for rule in RULES for finding in rule(recording)]
    return sorted(found, key=lambda finding: not finding.is_problem)
