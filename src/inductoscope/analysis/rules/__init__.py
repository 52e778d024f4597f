"""Rules that read a recording and report what is wrong with it, grouped by subject.

A rule is a function, named for the symptom. `inductoscope explain` prints its docstring: one line,
then four paragraphs (what it finds, why it matters, an example, what to do). A new rule is such a
function and one line in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from inductoscope.analysis.rules import (
    cpp_kernels,
    dynamo,
    endings,
    gaps,
    gpu_kernels,
    inductor,
    wrong_indices,
)
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording

Rule = Callable[[Recording], Iterable[Finding]]

RULES: tuple[Rule, ...] = (
    endings.program_failed,
    endings.compile_error,
    endings.stall,
    endings.crash,
    endings.part_failed,
    dynamo.ranks_differ,
    wrong_indices.narrow_value,
    wrong_indices.out_of_bounds,
    wrong_indices.index_overflow,
    dynamo.ran_in_eager,
    dynamo.graph_breaks,
    dynamo.recompiles,
    cpp_kernels.scalar_loop,
    cpp_kernels.element_by_element,
    cpp_kernels.recomputed,
    inductor.repeated_expressions,
    cpp_kernels.threads_restarted,
    cpp_kernels.atomic_adds,
    inductor.kept_apart,
    inductor.layout_copies,
    gpu_kernels.register_spills,
    gpu_kernels.tensor_cores_unused,
    gpu_kernels.tiny_kernels,
    gpu_kernels.cudagraphs_off,
    gpu_kernels.split_reductions,
    gpu_kernels.unsplit_reductions,
    dynamo.slow_guards,
    inductor.tuning_gained_little,
    inductor.compile_threads,
    gaps.incomplete_recording,
    gaps.view_off,
    endings.exit_code,
    gaps.nothing_recorded,
    gaps.cache_hits,
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
    return [replace(finding, rule=rule.__name__) for finding in rule(recording)]


def diagnose(recording: Recording) -> list[Finding]:
    """Return all findings, problems first."""
    found = [finding for rule in RULES for finding in findings_of(rule, recording)]
    return sorted(found, key=lambda finding: not finding.is_problem)
