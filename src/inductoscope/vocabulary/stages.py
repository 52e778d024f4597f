"""Which stage of the compiler a module, a function or a phase of a trace belongs to.

The names of the stages are those of the doctor's verdict.
"""

from __future__ import annotations

import re

# The first that fits. Modules are as torch writes them into a header.
_MODULES = (
    # Called from every stage, or by the compiled function itself.
    (r"torch/_dynamo/(utils|repro/|backends/|eval_frame|callback|logging)", "user"),
    (r"torch/_functorch/_aot_autograd/runtime_wrappers", "runtime"),
    (r"torch/_inductor/(output_code|cudagraph_trees|cudagraph_utils)", "runtime"),
    (r"torch/_dynamo/", "dynamo"),
    (r"torch/_functorch/", "aot"),
    (r"torch/fx/experimental/proxy_tensor", "aot"),
    (r"torch/_inductor/fx_passes/pre_grad", "pre-grad-pass"),
    (r"torch/_inductor/fx_passes/joint_graph", "joint-pass"),
    (r"torch/_inductor/(fx_passes/|pattern_matcher|freezing|constant_folding)", "post-grad-pass"),
    (r"torch/_inductor/(select_algorithm|autotune_process|template_heuristics/)", "autotune"),
    (r"torch/_inductor/(graph|lowering|ir|decomposition|kernel/|choices)", "lowering"),
    (r"torch/_inductor/(scheduler|memory|comms|dependencies)", "scheduler"),
    (r"torch/_inductor/(loop_body|bounds|sizevars|index_propagation)", "loop-body"),
    (r"torch/_inductor/codegen/wrapper", "wrapper"),
    (r"torch/_inductor/codegen/", "codegen"),
    (r"torch/_inductor/(cpp_builder|cpu_vec_isa)", "cpp-compile"),
    (r"torch/_inductor/(async_compile|compile_worker/)", "triton-compile"),
    (r"torch/_inductor/runtime/", "triton-compile"),
    (r"torch/_inductor/compile_fx", "post-grad-pass"),
    (r"torch/_inductor/", "inductor"),
    (r"triton/", "triton-compile"),
)
_MODULE_STAGES = tuple((re.compile(expression), stage) for expression, stage in _MODULES)

# Inductor's own files, in its cache.
_GENERATED = re.compile(r"/torchinductor_[^/]+/|/c[a-z2-7]{50,52}\.py$")

_PHASES = (
    (r".*_template_precompiling$", "autotune"),
    (
        r".*_template_autotuning$|benchmark_fused_nodes|benchmark_|CachingAutotuner\.bench",
        "autotune",
    ),
    (r"pass\.pre_grad|_recursive_pre_grad", "pre-grad-pass"),
    (r"pass\.joint|_recursive_joint", "joint-pass"),
    (r"pass\.post_grad|_recursive_post_grad", "post-grad-pass"),
    (r"aot_|create_aot_|min_cut_|.*autograd_cache|backward\.", "aot"),
    (r"GraphLowering\.run", "lowering"),
    (r"Scheduler\.codegen|GraphLowering\.codegen|code_gen", "codegen"),
    (r"Scheduler\.", "scheduler"),
    (r"PythonWrapperCodegen|CppWrapper", "wrapper"),
    (r"compile_file", "cpp-compile"),
    (r"async_compile|PyCodeCache|CachingAutotuner|triton|TritonBundler", "triton-compile"),
    (r"inductor_|fx_codegen|fx_graph|compile_fx|additional_fake|GraphLowering", "post-grad-pass"),
    (r"dynamo|bytecode_|compile_attempt|build_guards|entire_|backend_compile|gc$", "dynamo"),
)
_PHASE_STAGES = tuple((re.compile(expression), stage) for expression, stage in _PHASES)

# A function of torch that says more than the module that it is in; innermost frame first.
_FUNCTIONS = {
    "wait_on_futures": "autotune",
    "benchmark_choice": "benchmark",
    "benchmark_all_configs": "benchmark",
    "do_bench": "benchmark",
    "benchmark_gpu": "benchmark",
    "benchmark_in_sub_process": "benchmark",
    "_wait_futures": "triton-compile",
    "run_compile_cmd": "cpp-compile",
    "compile_file": "cpp-compile",
    "make_cubin": "triton-compile",
    "make_llir": "triton-compile",
    "make_ttgir": "triton-compile",
    "fuse_nodes_once": "scheduler",
    "synchronize": "runtime",
}

WORDS = {
    "dynamo": "Dynamo, which traces the Python code",
    "aot": "AOTAutograd",
    "pre-grad-pass": "a pass over the graph before AOTAutograd",
    "joint-pass": "a pass over the joint graph",
    "post-grad-pass": "Inductor's passes over the graph",
    "lowering": "lowering, where operations become loops",
    "scheduler": "the scheduler, where kernels are fused",
    "loop-body": "the analysis of loop bodies",
    "codegen": "code generation",
    "wrapper": "the generation of the wrapper",
    "cpp-compile": "the C++ compiler",
    "triton-compile": "the compilation of kernels",
    "autotune": "autotuning",
    "benchmark": "benchmarking of choices",
    "runtime": "the run of the compiled code",
    "inductor": "Inductor",
    "user": "the program's own code",
}

# What TORCH_LOGS would have to say to see the stage.
LOGS_FOR = {
    "dynamo": "+dynamo",
    "aot": "+aot",
}


def stage_of_module(module: str) -> str:
    """The stage that a module works for; "user" for what is not torch's."""
    place = module.replace("\\", "/")
    if _GENERATED.search(place):
        return "runtime"
    for part in ("torch/", "triton/"):
        found = place.rfind("/" + part)
        if found >= 0:
            place = place[found + 1 :]
            break
    return _first(_MODULE_STAGES, place, "user")


def stage_of_phase(name: str) -> str:
    """The stage of a phase in a trace."""
    return _first(_PHASE_STAGES, name, "none")


def stage_of_frames(frames: list[tuple[str, str]]) -> tuple[str, int]:
    """The stage that a stack of (file, function) was in, and the frame that says so; -1 if none."""
    for number in range(len(frames) - 1, -1, -1):
        named = _FUNCTIONS.get(frames[number][1])
        if named is not None:
            return named, number
    for number in range(len(frames) - 1, -1, -1):
        stage = stage_of_module(frames[number][0])
        if stage != "user":
            return stage, number
    return "user", len(frames) - 1


def _first(table: tuple[tuple[re.Pattern[str], str], ...], text: str, otherwise: str) -> str:
    return next((stage for expression, stage in table if expression.match(text)), otherwise)
