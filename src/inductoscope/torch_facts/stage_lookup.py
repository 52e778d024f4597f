"""Which stage of the compiler a module, a stack frame or a phase of a trace belongs to.

There are three questions about a stack. `stage_of_frames` asks whose code is running: the innermost
frame counts, and every module of the compiler has a stage. `entered_stage` asks which stage a frame
enters: only the functions that torch enters a stage with count, so what a stage calls stays in it.
`stage_that_raised` asks whose code raised while a stage was open: code that several stages share
says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_generated

# The first match counts. Modules are spelled as in torch's log headers.
_MODULES = (
    # Called from every stage, or by the compiled function itself.
    (r"torch/_dynamo/(utils|repro/|backends/|eval_frame|callback|logging)", stages.USER),
    (r"torch/_functorch/_aot_autograd/runtime_wrappers", stages.RUNTIME),
    (r"torch/_dynamo/", stages.DYNAMO),
    (r"torch/_functorch/|torch/fx/experimental/proxy_tensor", stages.AOT),
    (r"triton/", stages.TRITON_COMPILE),
)
# Modules below torch/_inductor.
_INDUCTOR_MODULES = (
    (
        r"output_code|cudagraph_|aoti_eager|stream_|runtime/static_triton_launcher",
        stages.RUNTIME,
    ),
    (r"decomposition", stages.DECOMPOSITION),
    (r"fx_passes/pre_grad", stages.PRE_GRAD_PASS),
    (
        r"fx_passes/(joint_graph|auto_chunker/|fuse_attention|pad_mm|misc_patterns|replace_random)",
        stages.JOINT_PASS,
    ),
    (
        r"fx_passes/|pattern_matcher|freezing|constant_folding|custom_graph_pass"
        r"|augmented_graph_helper|_functionalize_collectives",
        stages.POST_GRAD_PASS,
    ),
    (
        r"select_algorithm|autotune_process|__autotune_main__|distributed_autotune"
        r"|template_heuristics/|autoheuristic/|lookup_table/|kernel_inputs|kernel_template_choice"
        r"|remote_gemm_autotune_cache|runtime/(benchmarking|autotune_cache|coordinate_descent)",
        stages.AUTOTUNE,
    ),
    (
        r"graph|lowering|ir|kernel/|choices|inductor_prims|subgraph_lowering|comm_lowering"
        r"|mkldnn_ir|(mkldnn|quantized|jagged)_lowerings",
        stages.LOWERING,
    ),
    (
        r"scheduler|memory|comms|comm_analysis|dependencies|tiling_utils|invert_expr_analysis",
        stages.SCHEDULER,
    ),
    (r"loop_body|bounds|sizevars|index_propagation|optimize_indexing", stages.LOOP_BODY),
    (r"codegen/(wrapper|cpp_wrapper|python_wrapper|memory_planning)", stages.WRAPPER),
    (r"codegen/|analyze_preserves_zero_mask", stages.CODEGEN),
    (r"cpp_builder|cpu_vec_isa|package/", stages.CPP_COMPILE),
    (r"async_compile|compile_worker/|triton_bundler|runtime/", stages.TRITON_COMPILE),
    (r"compile_fx|standalone_compile", stages.POST_GRAD_PASS),
    (r"", stages.INDUCTOR),
)
# Several stages use code of these modules, or keep it for a later stage.
_SHARED = re.compile(
    r"torch/_inductor/(compile_fx|standalone_compile|graph|ir|mkldnn_ir|choices|dependencies"
    r"|sizevars|tiling_utils|invert_expr_analysis)\.py"
)
# Stages whose code may run while another one is open: the code that raises may be theirs.
_MAY_RAISE_INSIDE: dict[str, tuple[str, ...]] = {
    stages.AOT: (stages.DECOMPOSITION,),
    stages.INDUCTOR: (
        *stages.PASSES,
        stages.LOWERING,
        stages.LOOP_BODY,
        stages.CODEGEN,
        stages.WRAPPER,
    ),
    stages.LOWERING: (stages.LOOP_BODY, stages.CODEGEN, stages.AUTOTUNE),
    stages.SCHEDULER: (stages.LOWERING, stages.LOOP_BODY, stages.CODEGEN),
    # Not loop bodies: code generation queries them, and may query what they lack.
    stages.CODEGEN: (stages.LOWERING, stages.WRAPPER),
}
# The functions by which a codegen backend answers the scheduler, besides those it calls itself.
_FOR_SCHEDULER = re.compile(r"_?can_fuse|fuse$|group_fn|\w*fusion")
_MODULE_STAGES = tuple(
    (re.compile(expression), stage)
    for expression, stage in (
        *((f"torch/_inductor/(?:{inner})", stage) for inner, stage in _INDUCTOR_MODULES),
        *_MODULES,
    )
)

_PHASES = (
    (r".*_template_precompiling$", stages.AUTOTUNE),
    (
        r".*_template_autotuning$|benchmark_fused_nodes|benchmark_|CachingAutotuner\.bench",
        stages.AUTOTUNE,
    ),
    (r"pass\.pre_grad|_recursive_pre_grad", stages.PRE_GRAD_PASS),
    (r"pass\.joint|_recursive_joint", stages.JOINT_PASS),
    (r"pass\.post_grad|_recursive_post_grad", stages.POST_GRAD_PASS),
    (r"aot_|create_aot_|min_cut_|.*autograd_cache|backward\.", stages.AOT),
    (r"GraphLowering\.run", stages.LOWERING),
    (r"Scheduler\.codegen|GraphLowering\.codegen|code_gen", stages.CODEGEN),
    (r"Scheduler\.", stages.SCHEDULER),
    (r"PythonWrapperCodegen|CppWrapper", stages.WRAPPER),
    (r"compile_file", stages.CPP_COMPILE),
    (r"async_compile|PyCodeCache|CachingAutotuner|triton|TritonBundler", stages.TRITON_COMPILE),
    (
        r"inductor_|fx_codegen|fx_graph|compile_fx|additional_fake|GraphLowering",
        stages.POST_GRAD_PASS,
    ),
    (r"dynamo|bytecode_|compile_attempt|build_guards|entire_|backend_compile|gc$", stages.DYNAMO),
)
_PHASE_STAGES = tuple((re.compile(expression), stage) for expression, stage in _PHASES)

# Functions of torch that are more specific than their module; innermost frame first.
_FUNCTIONS = {
    "wait_on_futures": stages.AUTOTUNE,
    "benchmark_choice": stages.BENCHMARK,
    "benchmark_all_configs": stages.BENCHMARK,
    "do_bench": stages.BENCHMARK,
    "benchmark_gpu": stages.BENCHMARK,
    "benchmark_in_sub_process": stages.BENCHMARK,
    "_wait_futures": stages.TRITON_COMPILE,
    "run_compile_cmd": stages.CPP_COMPILE,
    "compile_file": stages.CPP_COMPILE,
    "make_cubin": stages.TRITON_COMPILE,
    "make_llir": stages.TRITON_COMPILE,
    "make_ttgir": stages.TRITON_COMPILE,
    "fuse_nodes_once": stages.SCHEDULER,
    "synchronize": stages.RUNTIME,
}

# The functions that enter stages, by the end of their file's path; the first match counts.
_ENTRIES: dict[str, tuple[tuple[str, str], ...]] = {
    "torch/_dynamo/convert_frame.py": (
        (stages.DYNAMO, "_compile|_compile_inner|compile_inner|transform"),
    ),
    "torch/_dynamo/symbolic_convert.py": ((stages.DYNAMO, "run|step"),),
    "torch/_dynamo/guards.py": ((stages.GUARDS, "build_guards|__init__"),),
    "torch/_dynamo/output_graph.py": ((stages.BACKEND, "call_user_compiler|_call_user_compiler"),),
    "torch/_functorch/aot_autograd.py": (
        (stages.AOT, "aot_module_simplified|create_aot_dispatcher_.*"),
    ),
    "torch/_functorch/_aot_autograd/graph_compile.py": ((stages.AOT, ".*"),),
    "torch/fx/experimental/proxy_tensor.py": (
        (stages.AOT, "dispatch_trace|_make_fx_helper|wrapped"),
    ),
    "torch/_functorch/partitioners.py": ((stages.PARTITIONER, ".*"),),
    "torch/_inductor/compile_fx.py": (
        (stages.PRE_GRAD_PASS, ".*pre_grad_passes"),
        (stages.JOINT_PASS, ".*joint_graph_passes"),
        (stages.INDUCTOR, "codegen_and_compile|fx_codegen_and_compile"),
        (stages.POST_GRAD_PASS, ".*post_grad_passes"),
    ),
    "torch/_inductor/fx_passes/pre_grad.py": ((stages.PRE_GRAD_PASS, "pre_grad_passes"),),
    "torch/_inductor/fx_passes/joint_graph.py": ((stages.JOINT_PASS, "joint_graph_passes"),),
    "torch/_inductor/fx_passes/post_grad.py": ((stages.POST_GRAD_PASS, "post_grad_passes"),),
    "torch/_inductor/graph.py": (
        (stages.LOWERING, "run|run_node|call_function"),
        (stages.CODEGEN, "codegen|codegen_with_cpp_wrapper|_compile_to_module.*"),
    ),
    "torch/_inductor/scheduler.py": (
        (stages.SCHEDULER, "__init__|_init|.*topological.*|.*dead_node.*"),
        (stages.FUSION, "fuse_nodes.*|get_possible_fusions.*|can_fuse.*"),
        (stages.CODEGEN, "codegen|_codegen.*"),
    ),
    "torch/_inductor/select_algorithm.py": (
        (stages.AUTOTUNE, "do_autotuning|make_precompile_fn|__call__"),
        (stages.AUTOTUNE, "wait_on_futures|precompile.*"),
        (stages.BENCHMARK, "benchmark.*|_run_.*bench.*|do_bench.*"),
    ),
    "torch/_inductor/autotune_process.py": ((stages.BENCHMARK, "benchmark.*|do_bench|get|recv"),),
    "torch/_inductor/runtime/benchmarking.py": ((stages.BENCHMARK, ".*benchmark.*|.*_benchmark"),),
    "torch/_inductor/runtime/triton_heuristics.py": (
        (stages.BENCHMARK, "bench|benchmark_all_configs"),
        (stages.TRITON_COMPILE, "_precompile_config"),
    ),
    "torch/_inductor/cpp_builder.py": (
        (stages.CPP_COMPILE, "build|run_compile_cmd|_run_compile_cmd"),
    ),
    "torch/utils/cpp_extension.py": ((stages.CPP_COMPILE, "_run_ninja_build|_jit_compile"),),
    "triton/compiler/compiler.py": ((stages.TRITON_COMPILE, "compile"),),
    "triton/backends/nvidia/compiler.py": ((stages.PTXAS, "make_cubin"),),
    "torch/_inductor/async_compile.py": ((stages.WAITING, "wait|_wait_futures|get_result"),),
    "torch/_inductor/codecache.py": ((stages.WAITING, "result"),),
    "torch/_inductor/compile_worker/subproc_pool.py": ((stages.WAITING, "result"),),
    "filelock/_api.py": ((stages.FILE_LOCK, "acquire|__enter__|_poll_until_acquired"),),
    "torch/utils/file_baton.py": ((stages.FILE_LOCK, "wait"),),
    "torch/distributed/distributed_c10d.py": ((stages.COLLECTIVE, "[a-z].*"),),
    "torch/distributed/_functional_collectives.py": ((stages.COLLECTIVE, "wait_tensor|.*all_.*"),),
}
_ENTERED = tuple(
    (stage, file, re.compile(f"(?:{names})$"))
    for file, entries in _ENTRIES.items()
    for stage, names in entries
)


def stage_of_module(module: str) -> str:
    """Return the stage that a module works for; "user" if it is not torch's."""
    place = module.replace("\\", "/")
    if is_generated(place):
        return stages.RUNTIME
    for part in ("torch/", "triton/"):
        found = place.rfind("/" + part)
        if found >= 0:
            place = place[found + 1 :]
            break
    return _first(_MODULE_STAGES, place, stages.USER)


def stage_of_phase(name: str) -> str:
    return _first(_PHASE_STAGES, name, stages.NO_STAGE)


def stage_of_frames(frames: list[tuple[str, str]]) -> tuple[str, int]:
    """Return the stage of a stack of (file, function), and the deciding frame, else -1."""
    for number in range(len(frames) - 1, -1, -1):
        named = _FUNCTIONS.get(frames[number][1])
        if named is not None:
            return named, number
    for number in range(len(frames) - 1, -1, -1):
        stage = stage_of_module(frames[number][0])
        if stage != stages.USER:
            return stage, number
    return stages.USER, len(frames) - 1


def stage_that_raised(frames: Sequence[tuple[str, str]], open_stage: str) -> str:
    """Return the stage whose code raised, from a stack of (file, function), innermost first.

    `open_stage` is the stage that torch had entered; its stack may include code of other stages.
    """
    others = _MAY_RAISE_INSIDE.get(open_stage, ())
    for number, (file, function) in enumerate(frames):
        stage = stage_of_module(file)
        if stage == open_stage or (stage in stages.PASSES and open_stage in stages.PASSES):
            return open_stage
        if stage not in others or _SHARED.search(file.replace("\\", "/")):
            continue
        caller = frames[number + 1][0] if number + 1 < len(frames) else ""
        is_asked = "/_inductor/scheduler.py" in caller or _FOR_SCHEDULER.match(function)
        is_answer = stage == stages.CODEGEN and open_stage == stages.SCHEDULER and is_asked
        return open_stage if is_answer else stage
    return open_stage


def entered_stage(file: str, function: str) -> str:
    """Return the stage that a frame enters; empty for any other frame."""
    for stage, end, names in _ENTERED:
        if file.endswith(end) and names.match(function):
            return stage
    if not is_generated(file):
        return ""
    return stages.WRAPPER if function == "<module>" else stages.GENERATED


def _first(table: tuple[tuple[re.Pattern[str], str], ...], text: str, otherwise: str) -> str:
    return next((stage for expression, stage in table if expression.match(text)), otherwise)
