"""From source code to a running program: wrapper, native compile, autotuning, caches, run time."""

from __future__ import annotations

from inductoscope.views.explain.entities import StageEntry, log, setting, variable
from inductoscope.vocabulary import stages

WRAPPER = StageEntry(
    name=stages.WRAPPER,
    summary="The generated program that allocates buffers and calls the kernels in order.",
    does="A Python module (C++ with cpp_wrapper) with one call function: it checks the inputs, "
    "allocates buffers, launches kernels, frees buffers and returns the outputs.",
    lives=(
        "torch/_inductor/codegen/wrapper.py",
        "torch/_inductor/codegen/cpp_wrapper_cpu.py",
    ),
    notions=(("call", "the function that runs instead of the graph"),),
    look_here_when=("each kernel is right but the result is not", "overhead between kernels"),
    symptoms=(
        "a kernel gets a wrong argument or grid",
        "assert_size_stride fails",
        "a buffer is freed or reused too early",
        "time between kernels",
    ),
    elsewhere=(
        ("which buffer reuses which", "memory"),
        ("one kernel is wrong", stages.CODEGEN),
    ),
    flags=(
        log("output_code", "the wrapper"),
        setting("cpp_wrapper", "generates the wrapper in C++"),
        setting("size_asserts", "False omits the size checks"),
        setting("nan_asserts", "checks inputs and outputs for NaN"),
        setting("profiler_mark_wrapper_call", "marks the call in a profile"),
    ),
    commands=(("inductoscope show --stage wrapper", "the wrapper's source"),),
)

NATIVE = StageEntry(
    name="native",
    summary="Every run of a native compiler: g++ for C++ kernels, Triton and ptxas for GPU ones.",
    does="A view of commands, seconds, exit codes, messages, registers and spills. On CPU "
    "this is usually most of the compile time.",
    lives=("torch/_inductor/cpp_builder.py", "torch/_inductor/async_compile.py"),
    look_here_when=("the first call takes long", "a native compiler fails"),
    symptoms=("compile time", "slow first call", "compiler error in generated code"),
    elsewhere=(("the generated source is wrong", stages.CODEGEN),),
    flags=(
        log("async_compile", "the pool of compile workers"),
        variable("TORCHINDUCTOR_COMPILE_THREADS", "how many at once; 1 uses no workers"),
    ),
    commands=(
        ("inductoscope show --stage native", "every compiler run"),
        ("inductoscope export --to DIR --form perfetto", "the compiler runs on a timeline"),
    ),
    aliases=("compile",),
)

CPP_COMPILE = StageEntry(
    name=stages.CPP_COMPILE,
    summary="g++ or clang++ turns a generated C++ kernel into a library.",
    does="Compiles a file with the kernel and a binding for the chosen instruction set, and loads "
    "it. With an empty cache, a precompiled header and ten probes of the instruction set "
    "come first.",
    lives=("torch/_inductor/cpp_builder.py", "torch/_inductor/codecache.py"),
    notions=(("vec ISA", "the vector instructions that passed the probes"),),
    look_here_when=("CppCompileError", "a C++ kernel is wrong but its source is right"),
    symptoms=(
        "CppCompileError",
        "g++ hangs or takes minutes",
        "wrong only with -O3 or fast-math",
        "illegal instruction",
    ),
    elsewhere=(("the source does not compile because it is wrong", stages.CODEGEN),),
    flags=(
        setting("cpp.cxx", "which compiler"),
        setting("cpp.march", "the instruction set"),
        setting("cpp.enable_unsafe_math_opt_flag", "fast-math flags"),
        setting("cpp.enable_floating_point_contract_flag", "fused multiply-add"),
        variable("TORCHINDUCTOR_VEC_ISA_OK", "1 skips the probes"),
    ),
    commands=(
        ("inductoscope show --stage native", "commands and messages"),
        ("inductoscope show --kernel NAME --form asm", "the assembly, linked to the source"),
    ),
    aliases=("g++", "c++"),
)

TRITON_COMPILE = StageEntry(
    name=stages.TRITON_COMPILE,
    summary="Triton turns a kernel into TTIR, TTGIR, LLVM IR, PTX and a cubin (AMD: AMDGCN, "
    "hsaco).",
    does="Per configuration: Triton's own passes, LLVM, then ptxas. Runs in threads of the "
    "program until the pool of worker processes is ready, then in the pool.",
    lives=("torch/_inductor/runtime/triton_heuristics.py", "torch/_inductor/async_compile.py"),
    notions=(
        ("TTIR, TTGIR", "Triton's IR, before and after layouts are assigned to threads"),
        ("spills", "values that did not fit in registers and go through memory"),
        ("num_warps, num_stages", "chosen by a configuration, besides block sizes"),
    ),
    look_here_when=("ptxas or LLVM fails or does not finish", "a kernel spills or is slow"),
    symptoms=(
        "hang in ptxas",
        "out of shared memory or registers",
        "Triton compilation error",
        "a GPU kernel is wrong but its source is right",
    ),
    elsewhere=(
        ("one of many choices is stuck", stages.AUTOTUNE),
        ("the source is wrong", stages.CODEGEN),
    ),
    flags=(
        setting("worker_suppress_logging", "False lets workers print"),
        setting("compile_worker_wait_timeout", "seconds to wait for a worker"),
        setting("triton.spill_threshold", "configurations that spill more are dropped"),
    ),
    commands=(
        ("inductoscope show --kernel NAME --form ptx", "one form of the kernel"),
        ("inductoscope kernel FILE --timeout 60", "compile only this kernel, with a time limit"),
    ),
    aliases=("ptxas", "ptx"),
)

AUTOTUNE = StageEntry(
    name=stages.AUTOTUNE,
    summary="Compiles and times several implementations of an operation, and keeps the fastest.",
    does="With max_autotune, the choices for a matrix product are ATen, Triton templates in many "
    "configurations, and C++ or CUTLASS templates. They are precompiled, then timed on "
    "random data of the right shape. Pointwise kernels time a few block sizes when they "
    "first run.",
    lives=(
        "torch/_inductor/select_algorithm.py",
        "torch/_inductor/autotune_process.py",
        "torch/_inductor/template_heuristics/triton.py",
        "torch/_inductor/runtime/coordinate_descent_tuner.py",
        "torch/_inductor/kernel/mm.py",
        "torch/_inductor/kernel/bmm.py",
    ),
    notions=(
        ("choice", "one implementation with one configuration"),
        ("template", "a kernel with holes, for products and convolutions"),
        ("epilogue", "operations fused onto the output of a template"),
    ),
    look_here_when=("compiling hangs or takes minutes with max-autotune", "the winner looks wrong"),
    symptoms=(
        "hang while autotuning, DDP waits",
        "precompilation of choices is stuck",
        "No valid triton configs",
        "the chosen kernel differs from run to run",
        "wrong result only with max-autotune",
    ),
    elsewhere=(("one configuration never compiles", stages.TRITON_COMPILE),),
    flags=(
        log("autotuning", "choices and their times; silent on CPU"),
        setting("max_autotune", "turns autotuning on"),
        setting("max_autotune_gemm_backends", "which kinds of choices"),
        setting("autotune_in_subproc", "times choices in another process"),
        variable("TORCHINDUCTOR_PRECOMPILATION_TIMEOUT_SECONDS", "seconds until a choice fails"),
        variable("TORCHINDUCTOR_AUTOTUNE_CHOICE_NAME_REGEX", "only choices whose names match"),
    ),
    commands=(
        ("inductoscope show --stage autotune", "choices, times, the winner"),
        ("inductoscope logs FILE", "the stuck choice, from torch's own log"),
    ),
    aliases=("autotuning", "max-autotune"),
)

CACHE = StageEntry(
    name="cache",
    summary="Lookups in torch's caches: a hit skips every later stage.",
    does="AOTAutograd's cache holds compiled forwards and backwards, the FX graph cache compiled "
    "graphs, the code cache libraries and cubins. After a hit there is no IR or fusion to show.",
    lives=("torch/_inductor/codecache.py", "torch/_functorch/_aot_autograd/autograd_cache.py"),
    notions=(("bypass", "the graph cannot be cached; the reason is shown"),),
    look_here_when=("changing a setting has no effect", "every start recompiles everything"),
    symptoms=("nothing to see after the first run", "stale code", "cache miss at every start"),
    elsewhere=(("the same run compiles twice", "recompiles"),),
    flags=(
        log("cache", "lookups, keys and reasons"),
        setting("fx_graph_cache", "False compiles every graph"),
        setting("force_disable_caches", "True turns all caches off"),
        variable("TORCHINDUCTOR_CACHE_DIR", "another folder, such as an empty one"),
    ),
    commands=(
        ("inductoscope show --stage cache", "hits, misses, bypasses"),
        ("inductoscope run --fresh SCRIPT", "recompiles everything, in a private cache"),
    ),
    aliases=("caches",),
)

ERRORS = StageEntry(
    name="errors",
    summary="Exceptions that left the compiler, with the stage that raised them.",
    does="A view of each exception with its stage, the current operation and the user's line. It "
    "includes exceptions that torch suppressed by running the frame in eager.",
    lives=("torch/_inductor/exc.py", "torch/_dynamo/exc.py"),
    look_here_when=("compiling fails",),
    symptoms=("InductorError", "BackendCompilerFailed", "exception while compiling"),
    elsewhere=(("the process dies without an exception", stages.RUNTIME),),
    flags=(
        setting("torch._dynamo.config.suppress_errors", "runs code that does not compile in eager"),
        variable("TORCHDYNAMO_VERBOSE", "1 shows internal stack traces"),
    ),
    commands=(
        ("inductoscope show --stage errors", "all exceptions in full"),
        ("inductoscope doctor SCRIPT", "a minimal script that raises it"),
    ),
    aliases=("error",),
)

RUNTIME = StageEntry(
    name=stages.RUNTIME,
    summary="Compiled code runs: kernels on real data, guards, CUDA graphs.",
    does="The wrapper's call function runs. If the source is right, a failure here comes from "
    "inputs, alignment, memory, devices or CUDA graphs.",
    lives=("torch/_inductor/cudagraph_trees.py", "torch/_inductor/runtime/triton_heuristics.py"),
    look_here_when=("it compiles, but crashes or hangs when called",),
    symptoms=(
        "segmentation fault or illegal memory access",
        "NaN at run time",
        "a kernel does not return",
        "wrong only with CUDA graphs",
        "slow although compiled",
    ),
    elsewhere=(("crashes while compiling", stages.INDUCTOR), ("NaN in eager too", stages.USER)),
    flags=(
        setting("nan_asserts", "checks inputs and outputs for NaN"),
        setting("triton.cudagraphs", "turns CUDA graphs on"),
        setting("triton.debug_sync_kernel", "waits after every kernel, so an error names it"),
        setting("assert_indirect_indexing", "checks data-dependent indices"),
        setting("profile_bandwidth", "bandwidth of every kernel"),
        log("cudagraphs", "what is captured, and what is not and why"),
    ),
    commands=(
        ("inductoscope doctor SCRIPT", "the first kernel whose output is wrong"),
        ("inductoscope attach PID", "where a hanging process is"),
    ),
)

NONE = StageEntry(
    name=stages.NO_STAGE,
    summary="No stage: nothing is wrong, or nothing shows where.",
    does="Used in a verdict when no stage is to blame, or the evidence does not name one.",
    commands=(("inductoscope show", "what was recorded"),),
)

OUTPUT = (WRAPPER, NATIVE, CPP_COMPILE, TRITON_COMPILE, AUTOTUNE, CACHE, ERRORS, RUNTIME, NONE)
