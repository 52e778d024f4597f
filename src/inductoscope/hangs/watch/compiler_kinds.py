"""Rules for stalls in the compiler's Python code, in kernels and in the user's code."""

from __future__ import annotations

from inductoscope.hangs.watch.scene import (
    Position,
    Scene,
    StallDiagnosis,
    endable,
    file_name,
    is_users_frame,
    lowering_function,
    pass_function,
)
from inductoscope.processes.stacks import StackFrame
from inductoscope.torch_facts.stages import (
    AOT,
    AUTOTUNE,
    BENCHMARK,
    CODEGEN,
    CPP_COMPILE,
    DYNAMO,
    INDUCTOR,
    LOWERING,
    NO_STAGE,
    PASSES,
    RUNTIME,
    SCHEDULER,
    TRITON_COMPILE,
    USER,
    WRAPPER,
)

_INDUCTOR = (CODEGEN, INDUCTOR, "partitioner", AUTOTUNE, WRAPPER, "waiting", CPP_COMPILE)


def _from_stack(position: Position, pid_text: str = "") -> str:
    return f"stack: {position.entry.function} ({file_name(position.entry.file)}){pid_text}"


def _from_stream(scene: Scene) -> str:
    return f"the recording says stage {scene.recorded_stage}; no stack could be read"


def _found(scene: Scene, *stages: str) -> tuple[Position | None, str, str]:
    """A thread in one of the stages, the evidence and the confidence; empty if there is none.

    A stack decides. Without one, the stage that is open in the recording does: less certain.
    """
    position = scene.at(*stages)
    if position is not None:
        return position, _from_stack(position), "proven"
    if scene.main_thread is None and scene.recorded_stage in stages:
        return None, _from_stream(scene), "likely"
    return None, "", ""


def collective(scene: Scene) -> StallDiagnosis | None:
    """A rank waits for another one."""
    position, shown, confidence = _found(scene, "collective")
    if position is None:
        return None
    return StallDiagnosis(
        kind="collective",
        title=f"The process waits for another rank in {position.entry.function}",
        stage=USER,
        confidence=confidence,
        evidence=(shown, f"the process is {scene.doing(position.pid)}"),
        advice=(
            "Check the other ranks (inductoscope attach PID): the one that is elsewhere holds up "
            "the rest. Ranks that compile different graphs, or compile longer, arrive late."
        ),
        pid=position.pid,
        culprit=position.entry.function,
    )


def benchmarking(scene: Scene) -> StallDiagnosis | None:
    """Autotuning benchmarks a choice, which does not return."""
    position, shown, confidence = _found(scene, BENCHMARK)
    if not shown:
        return None
    pid = position.pid if position is not None else scene.root.pid
    return StallDiagnosis(
        kind="benchmark",
        title="A choice is being benchmarked and has not returned",
        stage=AUTOTUNE,
        confidence=confidence,
        evidence=(shown, f"pid {pid} is {scene.doing(pid)}"),
        advice=(
            "torch._inductor.config.autotune_in_subproc = True benchmarks choices in a subprocess, "
            "which can be killed; max_autotune_gemm_backends excludes a kind of choice."
        ),
        pid=pid,
        culprit=position.entry.function if position is not None else "",
        can_end=endable(scene, [p for p in scene.tree.workers if p.pid == pid]),
    )


def triton_compile(scene: Scene) -> StallDiagnosis | None:
    """Triton compiles in a Python process: its passes or LLVM, not a child process."""
    position, shown, confidence = _found(scene, TRITON_COMPILE, "ptxas")
    if not shown:
        return None
    pid = position.pid if position is not None else scene.root.pid
    inner = (
        next((f for f in reversed(position.inside) if "triton" in f.file), None)
        if position
        else None
    )
    where = f" in {inner.function}" if inner is not None else ""
    worker = scene.tree.get(pid)
    return StallDiagnosis(
        kind="triton-compile",
        title=f"Triton is compiling a kernel in pid {pid}{where} and has not finished",
        stage=TRITON_COMPILE,
        confidence=confidence,
        evidence=(
            shown,
            f"pid {pid} is {scene.doing(pid)}",
            "ptxas is not running: it is LLVM or Triton itself",
        ),
        advice=(
            "'inductoscope kernel FILE' compiles the kernel alone under a time limit and shows "
            "which pass it is in."
        ),
        pid=pid,
        culprit=inner.function if inner is not None else "",
        can_end=endable(scene, [worker] if worker is not None else []),
    )


def fusion(scene: Scene) -> StallDiagnosis | None:
    """The scheduler's fusion rounds: endless, or quadratic in the number of nodes."""
    position, shown, confidence = _found(scene, "fusion", SCHEDULER)
    if not shown:
        return None
    pid = position.pid if position is not None else scene.root.pid
    is_fusion = position is not None and (
        position.stage == "fusion" or any("fus" in f.function for f in position.inside)
    )
    return StallDiagnosis(
        kind="fusion" if is_fusion or position is None else "scheduler",
        title="The scheduler is in its fusion rounds" if is_fusion else "The scheduler is running",
        stage=SCHEDULER,
        confidence=confidence,
        evidence=(shown, f"pid {pid} is {scene.doing(pid)}"),
        advice=(
            "A smaller torch._inductor.config.max_fusion_size makes rounds cheaper; "
            "'inductoscope fusion RECORDING' shows which pairs were tried repeatedly."
        ),
        pid=pid,
        culprit=_innermost_name(position),
    )


def _innermost_name(position: Position | None) -> str:
    if position is None:
        return ""
    own = [frame for frame in position.inside if is_users_frame(frame)]
    return (own[0] if own else position.entry).text


def fx_pass(scene: Scene) -> StallDiagnosis | None:
    """A pass over the FX graph does not finish."""
    position, shown, confidence = _found(scene, *PASSES)
    if not shown:
        return None
    group = position.stage if position is not None else scene.recorded_stage
    function = pass_function(position) if position is not None else None
    name = f": {function.text}" if function is not None else "; which one is unknown"
    return StallDiagnosis(
        kind="fx-pass",
        title=f"A {group.removesuffix('-pass')} pass has not finished{name}",
        stage=group,
        confidence=confidence,
        evidence=(shown, f"the process is {scene.doing(scene.root.pid)}"),
        advice=_pass_advice(function),
        pid=scene.root.pid,
        culprit=function.text if function is not None else "",
    )


def _pass_advice(function: StackFrame | None) -> str:
    if function is not None and is_users_frame(function):
        return "The pass is your own code. As a workaround, disable it."
    return (
        "Disable passes one by one: TORCHINDUCTOR_DISABLED_PASSES takes parts of their names; "
        "torch._inductor.config.pattern_matcher = False disables the pattern passes."
    )


def lowering(scene: Scene) -> StallDiagnosis | None:
    """The lowering of one operation does not finish."""
    position, shown, confidence = _found(scene, LOWERING)
    if not shown:
        return None
    function = lowering_function(position) if position is not None else None
    name = f": {function.text}" if function is not None else ""
    return StallDiagnosis(
        kind="lowering",
        title=f"The lowering of an operation has not finished{name}",
        stage=LOWERING,
        confidence=confidence,
        evidence=(shown, f"the process is {scene.doing(scene.root.pid)}"),
        advice=(
            "Keep the operation out of Inductor: torch._inductor.lowering.make_fallback(op), or "
            "run the part around it in eager with torch.compiler.disable."
        ),
        pid=scene.root.pid,
        culprit=function.text if function is not None else "",
    )


def code_generation(scene: Scene) -> StallDiagnosis | None:
    """Code generation, or Inductor between two of its stages."""
    position, shown, confidence = _found(scene, *_INDUCTOR)
    if not shown:
        return None
    stage = position.stage if position is not None else scene.recorded_stage
    return StallDiagnosis(
        kind="inductor",
        title=f"Inductor makes no progress in stage {stage}",
        stage=CODEGEN if stage in (INDUCTOR, "partitioner") else stage,
        confidence=confidence,
        evidence=(shown, f"the process is {scene.doing(scene.root.pid)}"),
        advice="The stack shows where. backend='aot_eager' shows whether only Inductor hangs.",
        pid=scene.root.pid,
        culprit=_innermost_name(position),
    )


def kernel_runs(scene: Scene) -> StallDiagnosis | None:
    """Compiled code runs and has not returned."""
    position = scene.at("generated")
    if position is None:
        return None
    doing = scene.activity.get(position.pid)
    calm = doing is not None and doing.new_switches == 0 and doing.new_faults == 0
    place = f"{file_name(position.entry.file)}:{position.entry.line}"
    return StallDiagnosis(
        kind="kernel",
        title=f"A compiled kernel is running and has not returned ({place})",
        stage=RUNTIME,
        confidence="proven" if calm and doing is not None and doing.is_busy else "likely",
        evidence=(
            f"stack: {position.entry.function} in generated code, line {position.entry.line}",
            f"the process is {scene.doing(position.pid)}"
            + (", without context switches or page faults" if calm else ""),
        ),
        advice=(
            f"That line of {position.entry.file} names the kernel. Run with backend='eager' to see "
            "whether the operation itself is slow. On a GPU, set CUDA_LAUNCH_BLOCKING=1."
        ),
        pid=position.pid,
        culprit=f"{position.entry.file}:{position.entry.line}",
    )


def backend(scene: Scene) -> StallDiagnosis | None:
    """Dynamo called a backend of the user, which does not return."""
    position = scene.at("backend")
    own = (
        [frame for frame in position.inside if is_users_frame(frame)]
        if position is not None
        else []
    )
    if position is None or not own:
        return None
    return StallDiagnosis(
        kind="backend",
        title=f"The backend that Dynamo called has not returned: {own[0].text}",
        stage=DYNAMO,
        confidence="proven",
        evidence=(_from_stack(position), f"the process is {scene.doing(position.pid)}"),
        advice="The backend is your own code, not Inductor.",
        pid=position.pid,
        culprit=own[-1].text,
    )


def aot(scene: Scene) -> StallDiagnosis | None:
    """AOTAutograd traces and does not finish."""
    position, shown, confidence = _found(scene, AOT, "backend")
    if not shown:
        return None
    return StallDiagnosis(
        kind="aot",
        title="AOTAutograd is tracing the graph and has not finished",
        stage=AOT,
        confidence=confidence,
        evidence=(shown, f"the process is {scene.doing(scene.root.pid)}"),
        advice="backend='eager' skips AOTAutograd: if that helps, AOTAutograd is to blame.",
        pid=scene.root.pid,
        culprit=_innermost_name(position),
    )


def dynamo(scene: Scene) -> StallDiagnosis | None:
    """Dynamo traces the user's function and does not finish."""
    position, shown, confidence = _found(scene, DYNAMO, "guards")
    if not shown:
        return None
    return StallDiagnosis(
        kind="dynamo",
        title="Dynamo is tracing a function and has not finished",
        stage=DYNAMO,
        confidence=confidence,
        evidence=(shown, f"the process is {scene.doing(scene.root.pid)}"),
        advice=(
            "Dynamo unrolls loops: for a long one, use torch.compiler.disable on the function "
            "around it, or reduce the number of iterations."
        ),
        pid=scene.root.pid,
        culprit=_innermost_name(position),
    )


def user_code(scene: Scene) -> StallDiagnosis | None:
    """The program runs its own code, outside the compiler and compiled code."""
    thread = scene.main_thread
    if thread is None or scene.recorded_stage:
        return None
    own = next((frame for frame in thread.frames if is_users_frame(frame)), None)
    inner = thread.frames[0]
    return StallDiagnosis(
        kind="user-code",
        title=f"The program is in its own code: {(own or inner).text}",
        stage=USER,
        confidence="proven",
        evidence=(
            "neither the compiler nor generated code is on its stack",
            f"the process is {scene.doing(scene.root.pid)}",
        ),
        advice="torch.compile is not involved at the moment.",
        pid=scene.root.pid,
        culprit=(own or inner).text,
    )


def cannot_tell(scene: Scene) -> StallDiagnosis | None:
    """The evidence fits no other rule."""
    missing = [stacks.missing for stacks in scene.stacks.values() if stacks.missing]
    stage = scene.recorded_stage
    return StallDiagnosis(
        kind="unknown",
        title="The cause of the stall is unknown" + (f" (stage {stage})" if stage else ""),
        stage=stage or NO_STAGE,
        confidence="unknown",
        evidence=(f"the process is {scene.doing(scene.root.pid)}", *dict.fromkeys(missing)),
        advice="Stacks would show more: pip install py-spy, and permit it to trace processes.",
        pid=scene.root.pid,
    )
