"""Rules that read a recording and report what is wrong with it, grouped by subject.

A rule is a function, named for the symptom. `inductoscope explain` prints its docstring: one line,
then four paragraphs (what it finds, why it matters, an example, what to do). A new rule is such a
function and one line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from inductoscope.analysis.rules.cpp_kernels import (
    atomic_adds,
    element_by_element,
    recomputed,
    scalar_loop,
    threads_restarted,
)
from inductoscope.analysis.rules.dynamo import (
    graph_breaks,
    ran_in_eager,
    ranks_differ,
    recompiles,
    slow_guards,
)
from inductoscope.analysis.rules.endings import (
    compile_error,
    crash,
    exit_code,
    part_failed,
    program_failed,
    stall,
)
from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.gaps import (
    cache_hits,
    incomplete_recording,
    nothing_recorded,
    view_off,
)
from inductoscope.analysis.rules.gpu_kernels import (
    cudagraphs_off,
    register_spills,
    split_reductions,
    tensor_cores_unused,
    tiny_kernels,
    unsplit_reductions,
)
from inductoscope.analysis.rules.inductor import (
    compile_threads,
    kept_apart,
    layout_copies,
    repeated_expressions,
    tuning_gained_little,
)
from inductoscope.analysis.rules.wrong_indices import index_overflow, narrow_value, out_of_bounds
from inductoscope.model.entities import Recording

Rule = Callable[[Recording], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    program_failed,
    compile_error,
    stall,
    crash,
    part_failed,
    ranks_differ,
    narrow_value,
    out_of_bounds,
    index_overflow,
    ran_in_eager,
    graph_breaks,
    recompiles,
    scalar_loop,
    element_by_element,
    recomputed,
    repeated_expressions,
    threads_restarted,
    atomic_adds,
    kept_apart,
    layout_copies,
    register_spills,
    tensor_cores_unused,
    tiny_kernels,
    cudagraphs_off,
    split_reductions,
    unsplit_reductions,
    slow_guards,
    tuning_gained_little,
    compile_threads,
    incomplete_recording,
    view_off,
    exit_code,
    nothing_recorded,
    cache_hits,
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


def findings_of(rule: Rule, recording: Recording) -> list[Finding]:
    """Return the findings of one rule."""
    return [replace(finding, rule=rule.__name__) for finding in rule(recording)]


def diagnose(recording: Recording) -> list[Finding]:
    """Return all findings, problems first."""
    found = [finding for rule in RULES for finding in findings_of(rule, recording)]
    return sorted(found, key=lambda finding: not finding.is_problem)
