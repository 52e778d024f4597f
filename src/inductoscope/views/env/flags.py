"""The switches of torch that people are told to set when they debug Inductor."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

INDUCTOR_CONFIG = "torch._inductor.config"


class FlagKind(str, Enum):
    """How a switch is set."""

    VARIABLE = "environment variable"
    ARTIFACT = "TORCH_LOGS artifact"
    SETTING = "config key"


class FlagPhase(str, Enum):
    """When a switch acts: this decides whether compiled code must be made anew."""

    CODE_GENERATION = "code generation"
    COMPILE = "compile"
    RUN = "run"

    @property
    def meaning(self) -> str:
        return _PHASE_MEANINGS[self]


_PHASE_MEANINGS = {
    FlagPhase.CODE_GENERATION: "changes the generated code; existing code must be recompiled",
    FlagPhase.COMPILE: "acts while the compiler runs; the generated code stays the same",
    FlagPhase.RUN: "acts when the program runs; compiled code is used as is",
}


@dataclass(frozen=True)
class Flag:
    """One switch."""

    name: str
    kind: FlagKind
    acts: FlagPhase
    purpose: str
    example: str | None = None  # of a variable: a value that changes something
    config_key: str | None = None  # of a variable: the config key that it gives its first value
    replaced_by: str | None = None  # the flag to use instead where torch does not know this one
    set_by: tuple[str, ...] = ()  # our commands that set it
    since: str | None = (
        None  # the first torch that has it, where older ones that we support lack it
    )
    needs: str | None = None  # the build of torch outside of which it does not exist
    note: str | None = None  # what common advice gets wrong, or a trap

    @property
    def setting(self) -> tuple[str, str] | None:
        """Module and dotted path of the config key that this flag is or sets."""
        key = self.name if self.kind is FlagKind.SETTING else self.config_key
        if key is None:
            return None
        module, elsewhere, path = key.partition(".config.")
        return (f"{module}.config", path) if elsewhere else (INDUCTOR_CONFIG, key)


# --- The switches of torch that people are told to set when they debug Inductor -------------------
#
# The table says what torch cannot be asked: what a switch is for, when it acts, and what is wrong
# with the advice in circulation. Whether the installed torch knows it is never written down here:
# `inductoscope env --flags` finds that out.

VARIABLE, ARTIFACT, SETTING = FlagKind.VARIABLE, FlagKind.ARTIFACT, FlagKind.SETTING
CODE_GENERATION, COMPILE, RUN = FlagPhase.CODE_GENERATION, FlagPhase.COMPILE, FlagPhase.RUN

FLAGS: tuple[Flag, ...] = (
    # --- seeing what the compiler does ----------------------------------------------------------
    Flag(
        "TORCH_LOGS",
        VARIABLE,
        COMPILE,
        "which log lines appear on the console",
        example="+inductor",
        note="Goes to the console, not to /tmp/torchinductor_$USER; TORCH_LOGS_OUT names a file.",
    ),
    Flag("TORCH_LOGS_OUT", VARIABLE, COMPILE, "a file for the TORCH_LOGS lines", example="log.txt"),
    Flag(
        "TORCH_TRACE",
        VARIABLE,
        COMPILE,
        "a folder for the structured trace that tlparse reads",
        example="trace",
        note="Has no scheduler nodes, no IR, no fusion decisions and no loop bodies.",
    ),
    Flag(
        "TORCH_COMPILE_DEBUG",
        VARIABLE,
        COMPILE,
        "graphs, IR and generated code of each compile in ./torch_compile_debug",
        example="1",
        config_key="trace.enabled",
        note="After a hit in the FX graph cache there is no IR to write; use a fresh cache.",
    ),
    Flag("trace.enabled", SETTING, COMPILE, "the same as TORCH_COMPILE_DEBUG, from Python"),
    Flag(
        "trace.provenance_tracking",
        SETTING,
        COMPILE,
        "which source line became which kernel",
        replaced_by="trace.provenance_tracking_level",
    ),
    Flag(
        "trace.provenance_tracking_level",
        SETTING,
        COMPILE,
        "which source line became which kernel: 0, 1 or 2",
    ),
    Flag(
        "debug",
        SETTING,
        COMPILE,
        "lowers torch._dynamo's log level to DEBUG during a compile",
        note="Writes no files and shows no generated code: see TORCH_COMPILE_DEBUG, output_code.",
    ),
    Flag(
        "verbose_progress",
        SETTING,
        COMPILE,
        "the name of each kernel in the progress bar",
        note="Shows nothing unless disable_progress is False as well.",
    ),
    Flag(
        "inductor",
        ARTIFACT,
        COMPILE,
        "all loggers of Inductor; +inductor for DEBUG",
        note="+inductor leaves out what must be named, such as fusion and output_code.",
    ),
    Flag("post_grad_graphs", ARTIFACT, COMPILE, "the graph after the post-grad passes"),
    Flag("aot_graphs", ARTIFACT, COMPILE, "the graphs that AOTAutograd hands to Inductor"),
    Flag(
        "ir_pre_fusion",
        ARTIFACT,
        COMPILE,
        "Inductor's IR before fusion",
        note="On the console; ir_pre_fusion.txt is written by TORCH_COMPILE_DEBUG only.",
    ),
    Flag(
        "ir_post_fusion",
        ARTIFACT,
        COMPILE,
        "Inductor's IR and loop bodies after fusion",
        note="On the console; ir_post_fusion.txt is written by TORCH_COMPILE_DEBUG only.",
    ),
    Flag(
        "fusion",
        ARTIFACT,
        COMPILE,
        "which pairs were fused, and why others were not",
        note="Lines read 'cannot fuse op2 with op4: ...'; there is no 'FusionDecision' output.",
    ),
    Flag(
        "schedule",
        ARTIFACT,
        COMPILE,
        "what the scheduler decided for Triton kernels",
        note="Prints nothing for C++ kernels.",
    ),
    Flag("loop_ordering", ARTIFACT, COMPILE, "reordering of loops to make fusion possible"),
    Flag(
        "output_code",
        ARTIFACT,
        COMPILE,
        "the generated wrapper with its kernels",
        note="On the console, with the path of the file in the cache folder.",
    ),
    Flag("kernel_code", ARTIFACT, COMPILE, "the generated code, kernel by kernel"),
    Flag(
        "autotuning",
        ARTIFACT,
        COMPILE,
        "kernel source and timing of the choices tried",
        note="Prints nothing on the CPU.",
    ),
    Flag("recompiles", ARTIFACT, COMPILE, "why a graph was compiled again"),
    Flag("graph_breaks", ARTIFACT, COMPILE, "where Dynamo split the program"),
    # --- reporting a bug ------------------------------------------------------------------------
    Flag(
        "TORCHDYNAMO_REPRO_AFTER",
        VARIABLE,
        COMPILE,
        "starts torch's minifier on a failure",
        example="aot",
        config_key="torch._dynamo.config.repro_after",
        note="Knows 'dynamo' and 'aot'; 'inductor' is an error. Use 'aot' for Inductor's bugs.",
    ),
    Flag(
        "TORCHDYNAMO_REPRO_LEVEL",
        VARIABLE,
        COMPILE,
        "what the minifier looks for; 4: accuracy",
        example="4",
        config_key="torch._dynamo.config.repro_level",
        note="Level 4 does nothing, silently, after a hit in the FX graph cache.",
    ),
    Flag("TORCH_SHOW_CPP_STACKTRACES", VARIABLE, RUN, "C++ frames in torch's errors", example="1"),
    # --- switching parts of the compiler off or on ----------------------------------------------
    Flag("pattern_matcher", SETTING, CODE_GENERATION, "pattern replacement in the graph passes"),
    Flag(
        "TORCHINDUCTOR_DISABLED_PASSES",
        VARIABLE,
        CODE_GENERATION,
        "graph passes to skip, by name",
        example="PASS_NAME",
        config_key="disabled_passes",
        note="Also skips every pass whose name is part of a name in the list.",
    ),
    Flag(
        "TORCHINDUCTOR_FREEZING",
        VARIABLE,
        CODE_GENERATION,
        "weights become constants (inference)",
        example="1",
        config_key="freezing",
    ),
    Flag("freezing", SETTING, CODE_GENERATION, "weights become constants (inference)"),
    Flag(
        "TORCHINDUCTOR_TRITON_CUDAGRAPHS",
        VARIABLE,
        CODE_GENERATION,
        "CUDA graphs",
        replaced_by="TORCHINDUCTOR_CUDAGRAPHS",
        example="0",
    ),
    Flag(
        "TORCHINDUCTOR_CUDAGRAPHS",
        VARIABLE,
        CODE_GENERATION,
        "CUDA graphs",
        example="1",
        config_key="triton.cudagraphs",
        note="Off unless 1; mode='reduce-overhead' turns CUDA graphs on whatever it says.",
    ),
    Flag(
        "triton.cudagraphs",
        SETTING,
        CODE_GENERATION,
        "CUDA graphs",
        note="False leaves Triton in use; it is not a way to fall back to other code.",
    ),
    Flag("triton.unique_kernel_names", SETTING, CODE_GENERATION, "kernels named after their ops"),
    Flag(
        "cpp_wrapper",
        SETTING,
        CODE_GENERATION,
        "a wrapper in C++ instead of Python",
        note="The kernels stay what they were: it does not force C++ kernels.",
    ),
    Flag("cpp.threads", SETTING, CODE_GENERATION, "threads of C++ kernels; below 1: torch's own"),
    Flag("cpp.simdlen", SETTING, CODE_GENERATION, "vector width in bits; 1: no vectorisation"),
    Flag("fallback_random", SETTING, CODE_GENERATION, "eager's random numbers, for comparing"),
    Flag("emulate_precision_casts", SETTING, CODE_GENERATION, "eager's rounding of half floats"),
    # --- autotuning and compile workers ---------------------------------------------------------
    Flag(
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        VARIABLE,
        CODE_GENERATION,
        "try several kernels per matmul",
        example="1",
        config_key="max_autotune",
    ),
    Flag("max_autotune", SETTING, CODE_GENERATION, "try several kernels per matmul, convolution"),
    Flag("max_autotune_gemm", SETTING, CODE_GENERATION, "try several kernels per matmul"),
    Flag("autotune_local_cache", SETTING, COMPILE, "keep autotune results on this machine"),
    Flag("autotune_remote_cache", SETTING, COMPILE, "share autotune results through a server"),
    Flag(
        "TORCHINDUCTOR_PRECOMPILATION_TIMEOUT_SECONDS",
        VARIABLE,
        COMPILE,
        "how long to wait for the compilation of autotune choices",
        example="60",
        config_key="precompilation_timeout_seconds",
        note="The wait for the hung choice itself still follows it.",
    ),
    Flag(
        "TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT",
        VARIABLE,
        COMPILE,
        "how long to wait for a compile worker; 0: for ever",
        example="60",
        config_key="compile_worker_wait_timeout",
        since="2.13",
        note="C++ compiles ignore it; the stuck worker lives on.",
    ),
    Flag(
        "TORCHINDUCTOR_COMPILE_THREADS",
        VARIABLE,
        COMPILE,
        "compile workers; 1: none",
        example="1",
        config_key="compile_threads",
    ),
    Flag(
        "TORCHINDUCTOR_WORKER_SUPPRESS_LOGGING",
        VARIABLE,
        COMPILE,
        "silence compile workers",
        example="0",
        config_key="worker_suppress_logging",
    ),
    Flag(
        "TORCHINDUCTOR_WORKER_LOGPATH",
        VARIABLE,
        COMPILE,
        "where compile workers write their log",
        example="worker.log",
        config_key="torchinductor_worker_logpath",
    ),
    # --- caches and compilers -------------------------------------------------------------------
    Flag(
        "TORCHINDUCTOR_CACHE_DIR",
        VARIABLE,
        COMPILE,
        "Inductor's cache folder",
        example="cache",
        set_by=("run --fresh",),
        note="A warm cache hides IR, fusion and passes: a fresh folder shows them again.",
    ),
    Flag(
        "TRITON_CACHE_DIR",
        VARIABLE,
        COMPILE,
        "Triton's cache folder",
        example="cache/triton",
        set_by=("run --fresh",),
    ),
    Flag(
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        VARIABLE,
        COMPILE,
        "no cache is read or written",
        example="1",
        config_key="force_disable_caches",
    ),
    Flag(
        "TORCHINDUCTOR_VEC_ISA_OK",
        VARIABLE,
        COMPILE,
        "skip the trial compiles per vector ISA",
        example="1",
        config_key="cpp.vec_isa_ok",
    ),
    Flag("CXX", VARIABLE, COMPILE, "the C++ compiler", example="clang++", config_key="cpp.cxx"),
    # --- checking values, finding the kernel at fault -------------------------------------------
    Flag(
        "TORCHINDUCTOR_NAN_ASSERTS",
        VARIABLE,
        CODE_GENERATION,
        "generated code checks for NaN",
        example="1",
        config_key="nan_asserts",
        note="Around each kernel for Triton only; AOTInductor on the CPU checks inputs only.",
    ),
    Flag(
        "AOTI_RUNTIME_CHECK_INPUTS",
        VARIABLE,
        RUN,
        "an AOTInductor package checks its inputs",
        example="1",
        note="Acts at run time, not at code generation: every package has the check built in.",
    ),
    Flag(
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
        VARIABLE,
        CODE_GENERATION,
        "1 saves, 2 prints the values around each kernel, 3 prints kernel names",
        example="2",
        config_key="aot_inductor.debug_intermediate_value_printer",
        note="2 prints outputs before the launch too: uninitialised memory. "
        "With a Python wrapper 3 prints nothing.",
    ),
    Flag(
        "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT",
        VARIABLE,
        CODE_GENERATION,
        "the kernels that the value printer is for",
        example="triton_poi_fused_add_0",
        config_key="aot_inductor.filtered_kernel_names",
        note="Whole kernel names, separated by commas.",
    ),
    Flag("triton.debug_sync_kernel", SETTING, CODE_GENERATION, "wait after each kernel"),
    Flag("triton.debug_sync_graph", SETTING, CODE_GENERATION, "wait before and after each graph"),
    Flag(
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        VARIABLE,
        RUN,
        "no caching allocator: its spare room hides bad accesses",
        example="1",
        needs="CUDA",
    ),
    Flag(
        "CUDA_LAUNCH_BLOCKING",
        VARIABLE,
        RUN,
        "one kernel at a time: an error shows at its kernel",
        example="1",
        needs="CUDA",
        note="The CUDA driver reads it too.",
    ),
)
