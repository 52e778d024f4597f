"""The torch switches that people are told to set when debugging Inductor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

INDUCTOR_CONFIG = "torch._inductor.config"


# The mechanisms that set a switch.
VARIABLE, ARTIFACT, SETTING = "environment variable", "TORCH_LOGS artifact", "config key"

# When a switch acts, which decides whether code must be recompiled.
CODE_GENERATION, COMPILE, RUN = "code generation", "compile", "run"

PHASES = {
    CODE_GENERATION: "changes the generated code; existing code must be recompiled",
    COMPILE: "acts while the compiler runs; the generated code stays the same",
    RUN: "acts when the program runs; compiled code is used as is",
}


@dataclass(frozen=True)
class Flag:
    name: str
    kind: str
    acts: str
    purpose: str
    example: str | None = None  # of a variable: a value with an effect
    config_key: str | None = None  # of a variable: the config key that it initializes
    replaced_by: str | None = None  # the replacement if torch lacks this flag
    set_by: tuple[str, ...] = ()  # the inductoscope commands that set the flag
    since: str | None = None  # the first torch with the flag, if a supported one lacks it
    needs: str | None = None  # the only build of torch with the flag
    note: str | None = None  # a mistake in common advice, or a pitfall

    @property
    def setting(self) -> tuple[str, str] | None:
        """The module and dotted path of the config key that this flag is or sets."""
        key = self.name if self.kind == SETTING else self.config_key
        if key is None:
            return None
        module, elsewhere, path = key.partition(".config.")
        return (f"{module}.config", path) if elsewhere else (INDUCTOR_CONFIG, key)


# --- The switches of torch that people are told to set when they debug Inductor -------------------
#
# The table says what torch cannot be asked: what a switch is for, when it acts, and what is wrong
# with the advice in circulation. Whether the installed torch knows it is never written down here:
# `inductoscope env --flags` finds that out.


def _variable(name: str, acts: str, purpose: str, example: str = "1", **more: Any) -> Flag:
    return Flag(name, VARIABLE, acts, purpose, example, **more)


def _artifact(name: str, purpose: str, **more: Any) -> Flag:
    return Flag(name, ARTIFACT, COMPILE, purpose, **more)


def _setting(name: str, acts: str, purpose: str, **more: Any) -> Flag:
    return Flag(name, SETTING, acts, purpose, **more)


FLAGS: tuple[Flag, ...] = (
    # --- seeing what the compiler does ----------------------------------------------------------
    _variable(
        "TORCH_LOGS",
        COMPILE,
        "which log lines appear on the console",
        example="+inductor",
        note="Goes to the console, not to /tmp/torchinductor_$USER; TORCH_LOGS_OUT names a file.",
    ),
    _variable("TORCH_LOGS_OUT", COMPILE, "a file for the TORCH_LOGS lines", example="log.txt"),
    _variable(
        "TORCH_TRACE",
        COMPILE,
        "a folder for the structured trace that tlparse reads",
        example="trace",
        note="Has no scheduler nodes, no IR, no fusion decisions and no loop bodies.",
    ),
    _variable(
        "TORCH_COMPILE_DEBUG",
        COMPILE,
        "graphs, IR and generated code of each compile in ./torch_compile_debug",
        config_key="trace.enabled",
        note="After a hit in the FX graph cache there is no IR to write; use a fresh cache.",
    ),
    _setting("trace.enabled", COMPILE, "the same as TORCH_COMPILE_DEBUG, from Python"),
    _setting(
        "trace.provenance_tracking",
        COMPILE,
        "which source line became which kernel",
        replaced_by="trace.provenance_tracking_level",
    ),
    _setting(
        "trace.provenance_tracking_level",
        COMPILE,
        "which source line became which kernel: 0, 1 or 2",
    ),
    _setting(
        "debug",
        COMPILE,
        "lowers torch._dynamo's log level to DEBUG during a compile",
        note="Writes no files and shows no generated code: see TORCH_COMPILE_DEBUG, output_code.",
    ),
    _setting(
        "verbose_progress",
        COMPILE,
        "the name of each kernel in the progress bar",
        note="Shows nothing unless disable_progress is False as well.",
    ),
    _artifact(
        "inductor",
        "all loggers of Inductor; +inductor for DEBUG",
        note="+inductor leaves out what must be named, such as fusion and output_code.",
    ),
    _artifact("post_grad_graphs", "the graph after the post-grad passes"),
    _artifact("aot_graphs", "the graphs that AOTAutograd hands to Inductor"),
    _artifact(
        "ir_pre_fusion",
        "Inductor's IR before fusion",
        note="On the console; ir_pre_fusion.txt is written by TORCH_COMPILE_DEBUG only.",
    ),
    _artifact(
        "ir_post_fusion",
        "Inductor's IR and loop bodies after fusion",
        note="On the console; ir_post_fusion.txt is written by TORCH_COMPILE_DEBUG only.",
    ),
    _artifact(
        "fusion",
        "which pairs were fused, and why others were not",
        note="Lines read 'cannot fuse op2 with op4: ...'; there is no 'FusionDecision' output.",
    ),
    _artifact(
        "schedule",
        "what the scheduler decided for Triton kernels",
        note="Prints nothing for C++ kernels.",
    ),
    _artifact("loop_ordering", "reordering of loops to make fusion possible"),
    _artifact(
        "output_code",
        "the generated wrapper with its kernels",
        note="On the console, with the path of the file in the cache folder.",
    ),
    _artifact("kernel_code", "the generated code, kernel by kernel"),
    _artifact(
        "autotuning",
        "kernel source and timing of the choices tried",
        note="Prints nothing on the CPU.",
    ),
    _artifact("recompiles", "why a graph was compiled again"),
    _artifact("graph_breaks", "where Dynamo split the program"),
    # --- reporting a bug ------------------------------------------------------------------------
    _variable(
        "TORCHDYNAMO_REPRO_AFTER",
        COMPILE,
        "starts torch's minifier on a failure",
        example="aot",
        config_key="torch._dynamo.config.repro_after",
        note="Knows 'dynamo' and 'aot'; 'inductor' is an error. Use 'aot' for Inductor's bugs.",
    ),
    _variable(
        "TORCHDYNAMO_REPRO_LEVEL",
        COMPILE,
        "what the minifier looks for; 4: accuracy",
        example="4",
        config_key="torch._dynamo.config.repro_level",
        note="Level 4 does nothing, silently, after a hit in the FX graph cache.",
    ),
    _variable("TORCH_SHOW_CPP_STACKTRACES", RUN, "C++ frames in torch's errors"),
    # --- switching parts of the compiler off or on ----------------------------------------------
    _setting("pattern_matcher", CODE_GENERATION, "pattern replacement in the graph passes"),
    _variable(
        "TORCHINDUCTOR_DISABLED_PASSES",
        CODE_GENERATION,
        "graph passes to skip, by name",
        example="PASS_NAME",
        config_key="disabled_passes",
        note="Also skips every pass whose name is part of a name in the list.",
    ),
    _variable(
        "TORCHINDUCTOR_FREEZING",
        CODE_GENERATION,
        "weights become constants (inference)",
        config_key="freezing",
    ),
    _setting("freezing", CODE_GENERATION, "weights become constants (inference)"),
    _variable(
        "TORCHINDUCTOR_TRITON_CUDAGRAPHS",
        CODE_GENERATION,
        "CUDA graphs",
        example="0",
        replaced_by="TORCHINDUCTOR_CUDAGRAPHS",
    ),
    _variable(
        "TORCHINDUCTOR_CUDAGRAPHS",
        CODE_GENERATION,
        "CUDA graphs",
        config_key="triton.cudagraphs",
        note="Off unless 1; mode='reduce-overhead' turns CUDA graphs on whatever it says.",
    ),
    _setting(
        "triton.cudagraphs",
        CODE_GENERATION,
        "CUDA graphs",
        note="False leaves Triton in use; it is not a way to fall back to other code.",
    ),
    _setting("triton.unique_kernel_names", CODE_GENERATION, "kernels named after their ops"),
    _setting(
        "cpp_wrapper",
        CODE_GENERATION,
        "a wrapper in C++ instead of Python",
        note="The kernels stay what they were: it does not force C++ kernels.",
    ),
    _setting("cpp.threads", CODE_GENERATION, "threads of C++ kernels; below 1: torch's own"),
    _setting("cpp.simdlen", CODE_GENERATION, "vector width in bits; 1: no vectorisation"),
    _setting("fallback_random", CODE_GENERATION, "eager's random numbers, for comparing"),
    _setting("emulate_precision_casts", CODE_GENERATION, "eager's rounding of half floats"),
    # --- autotuning and compile workers ---------------------------------------------------------
    _variable(
        "TORCHINDUCTOR_MAX_AUTOTUNE",
        CODE_GENERATION,
        "try several kernels per matmul",
        config_key="max_autotune",
    ),
    _setting("max_autotune", CODE_GENERATION, "try several kernels per matmul, convolution"),
    _setting("max_autotune_gemm", CODE_GENERATION, "try several kernels per matmul"),
    _setting("autotune_local_cache", COMPILE, "keep autotune results on this machine"),
    _setting("autotune_remote_cache", COMPILE, "share autotune results through a server"),
    _variable(
        "TORCHINDUCTOR_PRECOMPILATION_TIMEOUT_SECONDS",
        COMPILE,
        "how long to wait for the compilation of autotune choices",
        example="60",
        config_key="precompilation_timeout_seconds",
        note="The wait for the hung choice itself still follows it.",
    ),
    _variable(
        "TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT",
        COMPILE,
        "how long to wait for a compile worker; 0: for ever",
        example="60",
        config_key="compile_worker_wait_timeout",
        since="2.13",
        note="C++ compiles ignore it; the stuck worker lives on.",
    ),
    _variable(
        "TORCHINDUCTOR_COMPILE_THREADS",
        COMPILE,
        "compile workers; 1: none",
        config_key="compile_threads",
    ),
    _variable(
        "TORCHINDUCTOR_WORKER_SUPPRESS_LOGGING",
        COMPILE,
        "silence compile workers",
        example="0",
        config_key="worker_suppress_logging",
    ),
    _variable(
        "TORCHINDUCTOR_WORKER_LOGPATH",
        COMPILE,
        "where compile workers write their log",
        example="worker.log",
        config_key="torchinductor_worker_logpath",
    ),
    # --- caches and compilers -------------------------------------------------------------------
    _variable(
        "TORCHINDUCTOR_CACHE_DIR",
        COMPILE,
        "Inductor's cache folder",
        example="cache",
        set_by=("run --fresh",),
        note="A warm cache hides IR, fusion and passes: a fresh folder shows them again.",
    ),
    _variable(
        "TRITON_CACHE_DIR",
        COMPILE,
        "Triton's cache folder",
        example="cache/triton",
        set_by=("run --fresh",),
    ),
    _variable(
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
        COMPILE,
        "no cache is read or written",
        config_key="force_disable_caches",
    ),
    _variable(
        "TORCHINDUCTOR_VEC_ISA_OK",
        COMPILE,
        "skip the trial compiles per vector ISA",
        config_key="cpp.vec_isa_ok",
    ),
    _variable("CXX", COMPILE, "the C++ compiler", example="clang++", config_key="cpp.cxx"),
    # --- checking values, finding the kernel at fault -------------------------------------------
    _variable(
        "TORCHINDUCTOR_NAN_ASSERTS",
        CODE_GENERATION,
        "generated code checks for NaN",
        config_key="nan_asserts",
        note="Around each kernel for Triton only; AOTInductor on the CPU checks inputs only.",
    ),
    _variable(
        "AOTI_RUNTIME_CHECK_INPUTS",
        RUN,
        "an AOTInductor package checks its inputs",
        note="Acts at run time, not at code generation: every package has the check built in.",
    ),
    _variable(
        "AOT_INDUCTOR_DEBUG_INTERMEDIATE_VALUE_PRINTER",
        CODE_GENERATION,
        "1 saves, 2 prints the values around each kernel, 3 prints kernel names",
        example="2",
        config_key="aot_inductor.debug_intermediate_value_printer",
        note="2 prints outputs before the launch too: uninitialised memory. "
        "With a Python wrapper 3 prints nothing.",
    ),
    _variable(
        "AOT_INDUCTOR_FILTERED_KERNELS_TO_PRINT",
        CODE_GENERATION,
        "the kernels that the value printer is for",
        example="triton_poi_fused_add_0",
        config_key="aot_inductor.filtered_kernel_names",
        note="Whole kernel names, separated by commas.",
    ),
    _setting("triton.debug_sync_kernel", CODE_GENERATION, "wait after each kernel"),
    _setting("triton.debug_sync_graph", CODE_GENERATION, "wait before and after each graph"),
    _variable(
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        RUN,
        "no caching allocator: its spare room hides bad accesses",
        needs="CUDA",
    ),
    _variable(
        "CUDA_LAUNCH_BLOCKING",
        RUN,
        "one kernel at a time: an error shows at its kernel",
        needs="CUDA",
        note="The CUDA driver reads it too.",
    ),
)
