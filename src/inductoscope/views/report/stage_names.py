"""The stages that can be shown, in the order in which the compiler runs them."""

STAGES = (
    "dynamo",
    "breaks",
    "guards",
    "recompiles",
    "aot",
    "passes",
    "ir",
    "scheduler",
    "fusion",
    "loop-body",
    "kernel",
    "memory",
    "wrapper",
    "native",
    "autotune",
    "cache",
    "errors",
)
