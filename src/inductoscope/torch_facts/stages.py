"""The stages of the compiler, by the names that recordings, JSON and users know them by.

Import the module and write `stages.CPP_COMPILE`; a test looks for names that are spelled out.
"""

from __future__ import annotations

USER = "user"
DYNAMO = "dynamo"
AOT = "aot"
DECOMPOSITION = "decomposition"
PRE_GRAD_PASS = "pre-grad-pass"
JOINT_PASS = "joint-pass"
POST_GRAD_PASS = "post-grad-pass"
LOWERING = "lowering"
SCHEDULER = "scheduler"
LOOP_BODY = "loop-body"
CODEGEN = "codegen"
CPP_COMPILE = "cpp-compile"
TRITON_COMPILE = "triton-compile"
AUTOTUNE = "autotune"
WRAPPER = "wrapper"
RUNTIME = "runtime"
NO_STAGE = "none"

# Between the stages of Inductor, and the part of autotuning that runs what was compiled.
INDUCTOR = "inductor"
BENCHMARK = "benchmark"

# Positions of a thread that are more precise than a stage, or outside all stages.
GUARDS = "guards"
BACKEND = "backend"
PARTITIONER = "partitioner"
FUSION = "fusion"
PTXAS = "ptxas"
WAITING = "waiting"
FILE_LOCK = "file-lock"
COLLECTIVE = "collective"
GENERATED = "generated"

# The names that a verdict may use.
VERDICT_STAGES = (
    USER, DYNAMO, AOT, DECOMPOSITION, PRE_GRAD_PASS, JOINT_PASS, POST_GRAD_PASS, LOWERING,
    SCHEDULER, LOOP_BODY, CODEGEN, CPP_COMPILE, TRITON_COMPILE, AUTOTUNE, WRAPPER, RUNTIME,
    NO_STAGE,
)  # fmt: skip

# The order of the compiler. Autotuning takes place while operations are lowered.
COMPILER_ORDER = (
    DYNAMO, PRE_GRAD_PASS, AOT, DECOMPOSITION, JOINT_PASS, POST_GRAD_PASS, LOWERING, AUTOTUNE,
    SCHEDULER, LOOP_BODY, CODEGEN, WRAPPER, CPP_COMPILE, TRITON_COMPILE, RUNTIME,
)  # fmt: skip

PASSES = (PRE_GRAD_PASS, JOINT_PASS, POST_GRAD_PASS)
NATIVE_COMPILES = (CPP_COMPILE, TRITON_COMPILE)
BEFORE_INDUCTOR = (DYNAMO, AOT)

# The stages that `show` and `diff` display, in the order in which the compiler runs them.
SHOWN = (
    DYNAMO, "breaks", GUARDS, "recompiles", AOT, "passes", "ir", SCHEDULER, FUSION, LOOP_BODY,
    "kernel", "memory", WRAPPER, "native", AUTOTUNE, "cache", "errors",
)  # fmt: skip

# The view in which a stage of the compiler is shown.
SHOWN_AS = {
    DYNAMO: DYNAMO,
    AOT: AOT,
    DECOMPOSITION: AOT,
    PRE_GRAD_PASS: "passes",
    JOINT_PASS: "passes",
    POST_GRAD_PASS: "passes",
    LOWERING: "ir",
    SCHEDULER: SCHEDULER,
    CODEGEN: "kernel",
    CPP_COMPILE: "native",
    TRITON_COMPILE: "native",
    AUTOTUNE: AUTOTUNE,
    WRAPPER: WRAPPER,
}

WORDS = {
    USER: "user code",
    DYNAMO: "Dynamo, which traces the Python code",
    AOT: "AOTAutograd",
    DECOMPOSITION: "a decomposition",
    PRE_GRAD_PASS: "a pass over the graph before AOTAutograd",
    JOINT_PASS: "a pass over the joint graph",
    POST_GRAD_PASS: "Inductor's passes over the graph",
    LOWERING: "lowering, where operations become loops",
    SCHEDULER: "the scheduler, where kernels are fused",
    LOOP_BODY: "loop body analysis",
    CODEGEN: "code generation",
    WRAPPER: "wrapper generation",
    CPP_COMPILE: "the C++ compiler",
    TRITON_COMPILE: "kernel compilation",
    AUTOTUNE: "autotuning",
    BENCHMARK: "benchmarking choices",
    RUNTIME: "the compiled code",
    INDUCTOR: "Inductor",
}


# --- The ways in which a graph reaches Inductor ---------------------------------------------------

# torch.compile, with Dynamo in front. A recording contains no name for this case.
JUST_IN_TIME = ""
# Exported, compiled into a package, loaded and called.
AOT_INDUCTOR = "AOTInductor"
# torch.compile, with a C++ wrapper around the kernels.
CPP_WRAPPER = "the C++ wrapper"
# Simpler ways for each: a failure that also occurs there is not specific to the way itself.
PLAIN = {AOT_INDUCTOR: "torch.compile", CPP_WRAPPER: "torch.compile with a Python wrapper"}
