"""The kinds of stalls, and which one a scene shows."""

from __future__ import annotations

from collections.abc import Callable

from inductoscope.hangs.watch import compiler_kinds, native_kinds
from inductoscope.hangs.watch.scene import Scene, StallDiagnosis

Rule = Callable[[Scene], StallDiagnosis | None]

# The first match wins: causes come before what they hold up. A process waits for its lock or its
# compiler inside a stage that would match as well.
KINDS: tuple[Rule, ...] = (
    native_kinds.stopped,
    native_kinds.file_lock,
    native_kinds.ptxas,
    native_kinds.cpp_compiler,
    native_kinds.worker_died,
    compiler_kinds.collective,
    compiler_kinds.triton_compile,
    compiler_kinds.benchmarking,
    native_kinds.workers_work,
    native_kinds.pool_deadlock,
    compiler_kinds.fusion,
    compiler_kinds.fx_pass,
    compiler_kinds.lowering,
    compiler_kinds.code_generation,
    compiler_kinds.kernel_runs,
    compiler_kinds.backend,
    compiler_kinds.aot,
    compiler_kinds.dynamo,
    compiler_kinds.user_code,
    compiler_kinds.cannot_tell,
)


def classify(scene: Scene) -> StallDiagnosis:
    """The kind of stall that a scene shows."""
    for rule in KINDS:
        found = rule(scene)
        if found is not None:
            return found
    raise AssertionError("the last rule always answers")
