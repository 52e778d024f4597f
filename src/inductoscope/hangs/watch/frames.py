"""What a stack says: the stage of the compiler that a thread is in, and whose code it runs.

A stage is known by the function that torch enters it with. Of several on one stack the innermost
counts: Inductor runs inside of AOTAutograd, which runs inside of Dynamo.
"""

from __future__ import annotations

import re
import sysconfig
from dataclasses import dataclass

from inductoscope.processes.stacks import Frame, Stacks, ThreadStack

# Stage, the end of the file's path, and the functions by which it is entered.
_ENTRIES: tuple[tuple[str, str, str], ...] = (
    ("dynamo", "torch/_dynamo/convert_frame.py", "_compile|_compile_inner|compile_inner|transform"),
    ("dynamo", "torch/_dynamo/symbolic_convert.py", "run|step"),
    ("guards", "torch/_dynamo/guards.py", "build_guards|__init__"),
    ("backend", "torch/_dynamo/output_graph.py", "call_user_compiler|_call_user_compiler"),
    ("aot", "torch/_functorch/aot_autograd.py", "aot_module_simplified|create_aot_dispatcher_.*"),
    ("aot", "torch/_functorch/_aot_autograd/graph_compile.py", ".*"),
    ("aot", "torch/fx/experimental/proxy_tensor.py", "dispatch_trace|_make_fx_helper|wrapped"),
    ("partitioner", "torch/_functorch/partitioners.py", ".*"),
    ("pre-grad-pass", "torch/_inductor/compile_fx.py", ".*pre_grad_passes"),
    ("pre-grad-pass", "torch/_inductor/fx_passes/pre_grad.py", "pre_grad_passes"),
    ("joint-pass", "torch/_inductor/compile_fx.py", ".*joint_graph_passes"),
    ("joint-pass", "torch/_inductor/fx_passes/joint_graph.py", "joint_graph_passes"),
    ("inductor", "torch/_inductor/compile_fx.py", "codegen_and_compile|fx_codegen_and_compile"),
    ("post-grad-pass", "torch/_inductor/compile_fx.py", ".*post_grad_passes"),
    ("post-grad-pass", "torch/_inductor/fx_passes/post_grad.py", "post_grad_passes"),
    ("lowering", "torch/_inductor/graph.py", "run|run_node|call_function"),
    ("scheduler", "torch/_inductor/scheduler.py", "__init__|_init|.*topological.*|.*dead_node.*"),
    ("fusion", "torch/_inductor/scheduler.py", "fuse_nodes.*|get_possible_fusions.*|can_fuse.*"),
    ("codegen", "torch/_inductor/scheduler.py", "codegen|_codegen.*"),
    (
        "codegen",
        "torch/_inductor/graph.py",
        "codegen|codegen_with_cpp_wrapper|_compile_to_module.*",
    ),
    (
        "autotune",
        "torch/_inductor/select_algorithm.py",
        "do_autotuning|make_precompile_fn|__call__",
    ),
    ("autotune", "torch/_inductor/select_algorithm.py", "wait_on_futures|precompile.*"),
    ("benchmark", "torch/_inductor/select_algorithm.py", "benchmark.*|_run_.*bench.*|do_bench.*"),
    ("benchmark", "torch/_inductor/autotune_process.py", "benchmark.*|do_bench|get|recv"),
    ("benchmark", "torch/_inductor/runtime/benchmarking.py", ".*benchmark.*|.*_benchmark"),
    ("benchmark", "torch/_inductor/runtime/triton_heuristics.py", "bench|benchmark_all_configs"),
    ("cpp-compile", "torch/_inductor/cpp_builder.py", "build|run_compile_cmd|_run_compile_cmd"),
    ("cpp-compile", "torch/utils/cpp_extension.py", "_run_ninja_build|_jit_compile"),
    ("triton-compile", "torch/_inductor/runtime/triton_heuristics.py", "_precompile_config"),
    ("triton-compile", "triton/compiler/compiler.py", "compile"),
    ("ptxas", "triton/backends/nvidia/compiler.py", "make_cubin"),
    ("waiting", "torch/_inductor/async_compile.py", "wait|_wait_futures|get_result"),
    ("waiting", "torch/_inductor/codecache.py", "result"),
    ("waiting", "torch/_inductor/compile_worker/subproc_pool.py", "result"),
    ("file-lock", "filelock/_api.py", "acquire|__enter__|_poll_until_acquired"),
    ("file-lock", "torch/utils/file_baton.py", "wait"),
    ("collective", "torch/distributed/distributed_c10d.py", "[a-z].*"),
    ("collective", "torch/distributed/_functional_collectives.py", "wait_tensor|.*all_.*"),
)
_TABLE = tuple((stage, file, re.compile(f"(?:{names})$")) for stage, file, names in _ENTRIES)

# Files that torch generates are named by a hash of what is in them.
_GENERATED = re.compile(r"/[a-z0-9]{2}/c[a-z0-9]{40,}\.(?:py|main\.cpp|cpp)$")
_LIBRARIES = tuple(
    {
        path.rstrip("/") + "/"
        for path in (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
        if path
    }
)
_NOT_THE_USERS = ("/site-packages/", "/dist-packages/", "/inductoscope/", "<frozen", "/lib/python3")

# Between a group of passes and the pass itself there is only this.
_PASS_PLUMBING = (
    "graph_transform_observer.py",
    "contextlib.py",
    "torch/_dynamo/utils.py",
    "torch/_inductor/compile_fx.py",
    "inductoscope/capture/observe.py",
    "torch/_utils_internal.py",
    "torch/_inductor/custom_graph_pass.py",
)
_GROUPS = ("post_grad_passes", "joint_graph_passes", "pre_grad_passes")


@dataclass(frozen=True)
class Position:
    """Where one thread is."""

    pid: int
    thread: str
    stage: str
    # The frame that the stage was entered with.
    entry: Frame
    # Frames inside of the stage, outermost first.
    inside: tuple[Frame, ...]


def is_generated(frame: Frame) -> bool:
    """Whether a frame is in code that Inductor generated."""
    return bool(_GENERATED.search(frame.file)) or "/torchinductor_" in frame.file


def is_users(frame: Frame) -> bool:
    """Whether a frame is in the user's own file."""
    if not frame.line or not frame.file or frame.file.startswith(("<", *_LIBRARIES)):
        return False
    return not is_generated(frame) and not any(part in frame.file for part in _NOT_THE_USERS)


def stage_of(frame: Frame) -> str:
    """The stage that a frame is the entry of; empty for any other frame."""
    for stage, file, names in _TABLE:
        if frame.file.endswith(file) and names.match(frame.name):
            return stage
    if not is_generated(frame):
        return ""
    return "wrapper" if frame.name == "<module>" else "generated"


def position_of(pid: int, thread: ThreadStack) -> Position | None:
    """The stage that a thread is in; None if it is in none."""
    for number, frame in enumerate(thread.frames):
        stage = stage_of(frame)
        if stage:
            inside = tuple(reversed(thread.frames[:number]))
            return Position(pid, thread.name, stage, frame, inside)
    return None


def positions(stacks: Stacks) -> list[Position]:
    """The positions of all threads of a process that are in a stage."""
    found = (position_of(stacks.pid, thread) for thread in stacks.threads)
    return [position for position in found if position is not None]


def has_stage(thread: ThreadStack, stage: str) -> bool:
    """Whether a stage is anywhere on the stack."""
    return any(stage_of(frame) == stage for frame in thread.frames)


def user_frame(stacks: Stacks) -> Frame | None:
    """The innermost frame of the user's own files, on the main thread before all others."""
    ordered = sorted(stacks.threads, key=lambda thread: thread.name != "MainThread")
    for thread in ordered:
        for frame in thread.frames:
            if is_users(frame):
                return frame
    return None


def pass_function(position: Position) -> Frame | None:
    """The function of the pass that is under way in a group of passes."""
    for frame in position.inside:
        is_group = frame.name.endswith(_GROUPS) and "torch/_inductor" in frame.file
        if not is_group and not frame.file.endswith(_PASS_PLUMBING):
            return frame
    return None


def lowering_function(position: Position) -> Frame | None:
    """The function that lowers the operation under way."""
    plumbing = ("torch/_inductor/graph.py", "torch/fx/interpreter.py", *_PASS_PLUMBING)
    for frame in position.inside:
        if not frame.file.endswith(plumbing) and frame.name not in ("wrapped", "watched"):
            return frame
    return None


def main_thread(stacks: Stacks) -> ThreadStack | None:
    """The thread that began the program."""
    named = [thread for thread in stacks.threads if thread.name == "MainThread"]
    return next(iter(named or stacks.threads), None)


def mark(stacks: Stacks) -> tuple[str, ...]:
    """Where the main thread is, so that two marks are equal if it has got no further.

    Inside of a stage the calls change all the time, in an endless loop too: only the stages count,
    with the pass or the lowering that is under way. Elsewhere all calls count.
    """
    thread = main_thread(stacks) if stacks.has_python else None
    if thread is None:
        return ()
    position = position_of(stacks.pid, thread)
    if position is None:
        return tuple(f"{frame.file}:{frame.function}" for frame in thread.frames)
    stages = [stage for frame in reversed(thread.frames) if (stage := stage_of(frame))]
    found = [stage for number, stage in enumerate(stages) if stage not in stages[:number]]
    if position.stage == "generated":
        found.append(f"{position.entry.file}:{position.entry.line}")
    inner = pass_function(position) if position.stage.endswith("-pass") else None
    inner = lowering_function(position) if position.stage == "lowering" else inner
    return (*found, f"{inner.file}:{inner.function}" if inner is not None else "")
