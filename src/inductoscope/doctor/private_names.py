"""Private torch names that the doctor needs besides those of the hooks; `inductoscope env` checks.

A missing one takes away what is said beside it and nothing else: the doctor goes on without.
"""

from __future__ import annotations

from inductoscope.vocabulary import stages
from inductoscope.vocabulary.torch_names import TorchName

# Stage, and the name that something in `check`, `isolate` or `doctor` relies on.
DOCTOR_NAMES: tuple[tuple[str, TorchName], ...] = (
    (stages.DYNAMO, TorchName("torch._dynamo.output_graph", "OutputGraph.call_user_compiler")),
    (stages.DYNAMO, TorchName("torch._dynamo.eval_frame", "_TorchDynamoContext.__call__")),
    (stages.DECOMPOSITION, TorchName("torch._inductor.decomposition", "select_decomp_table")),
    ("passes", TorchName("torch._inductor.pattern_matcher", "PatternEntry.apply")),
    (
        "passes",
        TorchName("torch._inductor.compiler_bisector", "CompilerBisector.disable_subsystem"),
    ),
    (stages.LOWERING, TorchName("torch._inductor.graph", "make_fallback")),
    (stages.LOWERING, TorchName("torch._inductor.lowering", "make_fallback")),
    (stages.SCHEDULER, TorchName("torch._inductor.scheduler", "Scheduler.can_fuse")),
    (stages.CODEGEN, TorchName("torch._inductor.codegen.cpp", "TilingSelect.select_tiling")),
    (stages.CODEGEN, TorchName("torch._inductor.graph", "GraphLowering.codegen")),
    (stages.WRAPPER, TorchName("torch._inductor.codecache", "PyCodeCache.load_by_key_path")),
    (stages.WRAPPER, TorchName("torch._inductor.async_compile", "AsyncCompile.pool")),
    (stages.CPP_COMPILE, TorchName("torch._inductor.cpp_builder", "_get_optimization_cflags")),
)
