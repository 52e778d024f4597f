"""One file per stage of the compiler; each view lists the private torch names that it needs.

A new view is one `Hook` in the file of its stage and one line in `HOOKS`.
"""

from __future__ import annotations

from inductoscope.capture.hooks import (
    ahead_of_time,
    aot,
    autotune,
    caches,
    codegen,
    dynamo,
    fusion,
    inductor,
    kernel_lines,
    lowering,
    memory,
    native,
    passes,
    scheduler,
    settings,
    workers,
)
from inductoscope.vocabulary.torch_names import Hook

HOOKS: tuple[Hook, ...] = (
    dynamo.COMPILES,
    dynamo.GRAPHS,
    dynamo.GRAPH_BREAKS,
    dynamo.GUARDS,
    dynamo.RECOMPILES,
    dynamo.EAGER_FALLBACKS,
    settings.SETTINGS,
    ahead_of_time.PROGRAMS,
    aot.GRAPHS,
    aot.DECOMPOSITIONS,
    inductor.GRAPHS,
    inductor.CACHED_GRAPHS,
    passes.PASSES,
    passes.PASS_STAGES,
    lowering.NODES,
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
