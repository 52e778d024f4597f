"""Rules that read a recording and report what is wrong with it: one file per symptom.

A new rule is one file with a `check` function and one line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from inductoscope.analysis.rules import (
    atomic_adds,
    cache_hits,
    compile_error,
    compile_threads,
    crash,
    cudagraphs_off,
    element_by_element,
    exit_code,
    graph_breaks,
    incomplete_recording,
    index_overflow,
    kept_apart,
    layout_copies,
    narrow_value,
    nothing_recorded,
    out_of_bounds,
    part_failed,
    program_failed,
    ran_in_eager,
    ranks_differ,
    recompiles,
    recomputed,
    register_spills,
    repeated_expressions,
    scalar_loop,
    slow_guards,
    split_reductions,
    stall,
    tensor_cores_unused,
    threads_restarted,
    tiny_kernels,
    tuning_gained_little,
    unsplit_reductions,
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
    ranks_differ.check,
    narrow_value.check,
    out_of_bounds.check,
    index_overflow.check,
    ran_in_eager.check,
    graph_breaks.check,
    recompiles.check,
    scalar_loop.check,
    element_by_element.check,
    recomputed.check,
    repeated_expressions.check,
    threads_restarted.check,
    atomic_adds.check,
    kept_apart.check,
    layout_copies.check,
    register_spills.check,
    tensor_cores_unused.check,
    tiny_kernels.check,
    cudagraphs_off.check,
    split_reductions.check,
    unsplit_reductions.check,
    slow_guards.check,
    tuning_gained_little.check,
    compile_threads.check,
    incomplete_recording.check,
    view_off.check,
    exit_code.check,
    nothing_recorded.check,
    cache_hits.check,
)

# The rules that say why a program ended as it did.
ENDINGS = ("program_failed", "crash")
# The rules that say what makes compiled code slow, the costliest kind first.
SLOWNESS = (
    "recompiles",
    "graph_breaks",
    "scalar_loop",
    "element_by_element",
    "recomputed",
    "threads_restarted",
    "atomic_adds",
    "kept_apart",
    "layout_copies",
    "register_spills",
    "tensor_cores_unused",
    "tiny_kernels",
    "cudagraphs_off",
    "split_reductions",
    "unsplit_reductions",
    "slow_guards",
    "tuning_gained_little",
)
# The rules that say why a program ran, but not compiled.
UNCOMPILED = ("ran_in_eager",)


def diagnose(recording: Recording) -> list[Finding]:
    """All findings, problems first."""
    found = [finding for rule in RULES for finding in rule(recording)]
    return sorted(found, key=lambda finding: not finding.is_problem)
