"""One file per stage of the compiler; each view lists the private torch names that it needs.

A new view is one `Hook` in the file of its stage and one line in `HOOKS`.
"""

from __future__ import annotations

from inductoscope.inside.hooks import (
    aot,
    aot_inductor,
    autotune,
    caches,
    codegen,
    dynamo,
    fusion,
    inductor,
    kernel_lines,
    lowering,
    native,
    passes,
    scheduler,
)
from inductoscope.inside.hooks import codegen as memory
from inductoscope.inside.hooks import dynamo as settings
from inductoscope.inside.hooks import dynamo as tracing
from inductoscope.inside.hooks import inductor as cuda_graphs
from inductoscope.inside.hooks import kernel_lines as line_owners
from inductoscope.inside.hooks import native as workers
from inductoscope.torch_facts.torch_names import Hook

HOOKS: tuple[Hook, ...] = (
    dynamo.COMPILES,
    dynamo.GRAPHS,
    dynamo.GRAPH_BREAKS,
    dynamo.GUARDS,
    dynamo.RECOMPILES,
    dynamo.EAGER_FALLBACKS,
    tracing.TRACED_LINES,
    settings.SETTINGS,
    aot_inductor.PROGRAMS,
    aot.GRAPHS,
    aot.DECOMPOSITIONS,
    tracing.TRACED_NODES,
    inductor.GRAPHS,
    inductor.CACHED_GRAPHS,
    cuda_graphs.SKIPS,
    passes.PASSES,
    passes.PASS_STAGES,
    lowering.NODES,
    line_owners.OWNERS,
    scheduler.NODES,
    fusion.ROUNDS,
    fusion.PAIRS,
    fusion.SCORES,
    codegen.KERNELS,
    codegen.TRITON_KERNELS,
    codegen.EXTERN_KERNELS,
    kernel_lines.LINES,
    codegen.BUFFER_REUSE,
    codegen.WRAPPER,
    codegen.AHEAD_OF_TIME,
    memory.MEMORY,
    native.CPP,
    native.TRITON,
    workers.WORKERS,
    autotune.CHOICES,
    autotune.PRECOMPILES,
    autotune.LAUNCH_CONFIGS,
    autotune.SAYINGS,
    autotune.BENCHMARKS,
    caches.GRAPH_CACHES,
    caches.GRAPH_KEYS,
    caches.CPP_BINARIES,
    caches.LAUNCH_CONFIGS,
)
