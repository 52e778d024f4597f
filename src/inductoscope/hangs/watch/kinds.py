"""The kinds of stalls, and which one a scene shows.

`KINDS` is the table. A rule looks at processes, locks and stacks, and says what is stuck, how that
is known, and what to do. Only compilers and workers may be ended, never the user's own process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from inductoscope.hangs.watch.scene import (
    Position,
    Scene,
    StallDiagnosis,
    has_stage,
    is_users_frame,
    lowering_function,
    pass_function,
)
from inductoscope.processes.locks import FileLock
from inductoscope.processes.tree import ProcessSample
from inductoscope.torch_facts import stages

# Page faults per second that show progress, and the age up to which a compiler counts as working.
_FAULTS_OF_WORK = 50
_LONGEST_COMPILE = 1800.0
_CPP_TOOLS = ("C++ compiler", "linker", "assembler")
_OF_INDUCTOR = (
    *(stages.CODEGEN, stages.INDUCTOR, stages.PARTITIONER, stages.AUTOTUNE),
    *(stages.WRAPPER, stages.WAITING, stages.CPP_COMPILE),
)


@dataclass(frozen=True)
class StallKind:
    """A kind of stall: the names that a diagnosis gives it, its meaning, and its detection."""

    names: tuple[str, ...]
    summary: str
    find: Callable[[Scene], StallDiagnosis | None]


def classify(scene: Scene) -> StallDiagnosis:
    return next(found for kind in KINDS if (found := kind.find(scene)) is not None)


def endable(scene: Scene, processes: Sequence[ProcessSample]) -> tuple[int, ...]:
    """Return which processes may be ended: compilers, workers and their children."""
    found: list[int] = []
    for process in processes:
        if process.pid == scene.root.pid or not (process.compiler or process.is_torch_worker):
            continue
        below = [p.pid for p in scene.tree.below(process.pid)]
        found += [pid for pid in (*reversed(below), process.pid) if pid not in found]
    return tuple(found)


def _file_name(path: str) -> str:
    """Return the last two parts of a path, by which torch names a generated file."""
    return "/".join(path.split("/")[-2:])


# --- stopped processes and locks ------------------------------------------------------------------


def _stopped(scene: Scene) -> StallDiagnosis | None:
    victim = next((p for p in scene.tree.processes if p.is_stopped), None)
    if victim is None:
        return None
    is_root = victim.pid == scene.root.pid
    return StallDiagnosis(
        kind="stopped" if is_root else "worker-stopped",
        title=f"{_role(scene, victim)}, pid {victim.pid}, is stopped by a signal such as SIGSTOP",
        stage=stages.NO_STAGE if is_root else _native_stage(victim),
        confidence="proven",
        evidence=(f"/proc/{victim.pid}/stat says state {victim.state}",),
        advice=f"Resume it: kill -CONT {victim.pid}. Or end it: kill -KILL {victim.pid}.",
        pid=victim.pid,
        can_end=endable(scene, [victim]),
    )


def _role(scene: Scene, process: ProcessSample) -> str:
    if process.pid == scene.root.pid:
        return "The program itself"
    if process.compiler:
        return f"The {process.compiler} {process.name}"
    return "A torch compile worker" if process.is_torch_worker else f"The child {process.name}"


def _native_stage(process: ProcessSample) -> str:
    if process.compiler and process.compiler != "ptxas":
        return stages.CPP_COMPILE
    return stages.TRITON_COMPILE if process.compiler or process.is_torch_worker else stages.NO_STAGE


def _file_lock(scene: Scene) -> StallDiagnosis | None:
    waiting = scene.at(stages.FILE_LOCK)
    lock = _lock_in_the_way(scene)
    if waiting is None and (lock is None or not lock.is_wanted):
        return None
    if lock is not None and scene.tree.get(lock.holder) is not None and scene.tree.compilers:
        return None  # What the holder does is the cause, and other rules name it.
    pid = waiting.pid if waiting is not None else scene.root.pid
    if waiting is not None:
        how = f"its stack is in {waiting.entry.function} of {_file_name(waiting.entry.file)}"
    else:
        how = f"the lock file was opened {lock.tries if lock else 0} times while we looked"
    return _held(scene, lock, pid, how) if lock is not None else _left_behind(scene, pid, how)


def _lock_in_the_way(scene: Scene) -> FileLock | None:
    """Return the lock that a thread waits for: named in a stack, or with signs of a waiter."""
    if scene.wanted_lock:
        return next((lock for lock in scene.locks if lock.path == scene.wanted_lock), None)
    pids = {process.pid for process in scene.tree.processes}
    mine = [lock for lock in scene.locks if pids & set(lock.waiters)]
    # If the kernel lists a waiter of the lock, that process is the one that waits.
    tried = [lock for lock in scene.locks if not lock.waiters and lock.is_wanted]
    return next((lock for lock in (*mine, *tried) if lock.holder != scene.root.pid), None)


def _held(scene: Scene, lock: FileLock, pid: int, how: str) -> StallDiagnosis:
    mine = scene.tree.get(lock.holder) is not None
    whose = "a process of this program" if mine else "another program"
    return StallDiagnosis(
        kind="file-lock",
        title=f"The lock file {lock.path} is held by pid {lock.holder} ({whose})",
        stage=stages.CPP_COMPILE,
        confidence="proven" if scene.wanted_lock or lock.waiters else "likely",
        evidence=(how, f"/proc/locks names pid {lock.holder} as the holder"),
        advice=(
            f"See what pid {lock.holder} does (inductoscope attach {lock.holder}). If it is stuck "
            "or not needed, end it, which releases the lock. A separate cache folder "
            "(TORCHINDUCTOR_CACHE_DIR) avoids the wait."
        ),
        pid=pid,
        culprit=lock.path,
    )


def _left_behind(scene: Scene, pid: int, how: str) -> StallDiagnosis:
    known = scene.wanted_lock
    advice = (
        "Look for another program that uses the same cache folder, or use a separate one: "
        "TORCHINDUCTOR_CACHE_DIR."
    )
    if known and scene.lock_openers:
        who = ", ".join(map(str, scene.lock_openers))
        state, confidence = f"pid {who} has it open", "likely"
    elif known:
        state, confidence = "no process has it open: it is stale", "proven"
        advice = f"Delete {known}: its owner is gone."
    else:
        state, confidence = "its holder is unknown", "unknown"
    return StallDiagnosis(
        kind="file-lock",
        title=f"The process waits for a lock file{f' {known}' if known else ''}; {state}",
        stage=stages.CPP_COMPILE,
        confidence=confidence,
        evidence=(how,),
        advice=advice,
        pid=pid,
        culprit=known,
    )


# --- native compilers -----------------------------------------------------------------------------


def _ptxas(scene: Scene) -> StallDiagnosis | None:
    return _compiler(
        scene,
        ("ptxas",),
        kind="ptxas",
        stage=stages.TRITON_COMPILE,
        advice=(
            "End it with --kill-stuck: the choice it compiles then fails and the others "
            "continue. 'inductoscope kernel FILE' compiles the kernel alone."
        ),
    )


def _cpp_compiler(scene: Scene) -> StallDiagnosis | None:
    return _compiler(
        scene,
        _CPP_TOOLS,
        kind="cpp-compiler",
        stage=stages.CPP_COMPILE,
        advice=(
            "Run the command by hand (it is in the JSON) to see whether it ends. A smaller kernel "
            "or less optimisation (torch._inductor.config.aot_inductor.compile_wrapper_opt_level, "
            "cpp flags) may help; CXX selects another compiler."
        ),
    )


def _compiler(scene: Scene, tools: Sequence[str], **said: Any) -> StallDiagnosis | None:
    found = [p for p in scene.tree.compilers if p.compiler in tools]
    if not found:
        return None
    inner = found[0]
    doing = scene.activity.get(inner.pid)
    state = "is idle" if doing is not None and _family_sleeps(scene, inner) else "is busy"
    moves = _signs_of_work(scene, inner)
    source = next((p.source for p in found if p.source), "")
    return StallDiagnosis(
        title=f"{inner.name}, pid {inner.pid}, has run for {inner.age:.0f} s and {state}",
        confidence="proven",
        evidence=(
            f"{inner.name} is a child of the program: {scene.doing(inner.pid)}",
            *([f"it compiles {source}"] if source else []),
            *(f"started by {p.text}" for p in found[1:2]),
        ),
        pid=inner.pid,
        culprit=source,
        can_end=() if moves else endable(scene, found),
        moves=moves,
        **said,
    )


def _signs_of_work(scene: Scene, process: ProcessSample) -> str:
    """Describe a compiler's progress: one that works allocates memory, one in a loop does not.

    Up to the longest time that a compile may take, it counts as slow; after that, as stuck.
    """
    doing = scene.activity.get(process.pid)
    if doing is None or doing.is_asleep or process.age > _LONGEST_COMPILE:
        return ""
    if abs(doing.memory_growth) >= 1 << 20 or doing.new_faults >= _FAULTS_OF_WORK * doing.seconds:
        return f"{process.name} uses the processor and its memory changes"
    return ""


def _family_sleeps(scene: Scene, process: ProcessSample) -> bool:
    family = [process, *scene.tree.below(process.pid)]
    return all(scene.activity[p.pid].is_asleep for p in family if p.pid in scene.activity)


# --- compile workers ------------------------------------------------------------------------------


def _worker_died(scene: Scene) -> StallDiagnosis | None:
    dead = [p for p in scene.tree.processes if not p.is_alive and p.parent == scene.root.pid]
    others = [p for p in scene.tree.workers if p.pid != scene.root.pid]
    strays = [p for p in others if scene.tree.get(p.parent) is None]
    gone = [p for p in scene.lost if scene.tree.get(p.pid) is None]
    waits = _waits_for_pool(scene)
    if not waits or not (strays or gone or dead):
        return None
    victim = (gone or dead or strays)[0]
    return StallDiagnosis(
        kind="worker-died",
        title=_death_title(victim, strays),
        stage=stages.TRITON_COMPILE,
        confidence="proven" if strays or gone else "likely",
        evidence=(
            waits,
            *(f"{p.text} is dead, and its parent has not waited for it" for p in dead[:2]),
            *(f"worker pid {p.pid} still runs without its sidecar" for p in strays[:2]),
            *(f"worker pid {p.pid} has disappeared" for p in gone[:2]),
        ),
        advice=(
            "The result will never arrive. If nobody killed the worker, the machine ran out of "
            "memory: see dmesg. TORCHINDUCTOR_COMPILE_THREADS=1 compiles without workers; "
            "TORCHINDUCTOR_COMPILE_WORKER_WAIT_TIMEOUT (torch 2.13) ends the wait."
        ),
        pid=victim.pid,
        can_end=endable(scene, strays),
    )


def _death_title(victim: ProcessSample, strays: list[ProcessSample]) -> str:
    if victim in strays:
        return (
            f"The process that runs torch's compile workers is dead and the program still waits; "
            f"pid {victim.pid} is left over"
        )
    return f"A compile worker, pid {victim.pid}, died and the program still waits for its result"


def _waits_for_pool(scene: Scene) -> str:
    """Return the evidence that the program waits for a worker; empty if there is none."""
    waiting = scene.at(stages.WAITING, stages.AUTOTUNE)
    if waiting is not None and waiting.pid == scene.root.pid:
        return f"a thread waits in {waiting.entry.function} ({_file_name(waiting.entry.file)})"
    thread = scene.main_thread
    if not _is_compiling(scene):
        return ""
    if thread is not None and any(_is_result(f.name, f.file) for f in thread.frames[:6]):
        return "its main thread waits for the result of a future"
    if thread is None and scene.recorded_stage in (stages.TRITON_COMPILE, stages.AUTOTUNE):
        return f"its stream says stage {scene.recorded_stage}"
    return ""


def _is_result(function: str, file: str) -> bool:
    return function in ("result", "wait", "as_completed") and "concurrent/futures" in file


def _is_compiling(scene: Scene) -> bool:
    stacks = scene.stacks.get(scene.root.pid)
    threads = stacks.threads if stacks is not None else ()
    return bool(scene.recorded_stage) or any(has_stage(one, stages.DYNAMO) for one in threads)


def _workers_work(scene: Scene) -> StallDiagnosis | None:
    waits = _waits_for_pool(scene)
    active = [p for p in scene.tree.workers if _is_active(scene, p)]
    if not waits or not active:
        return None
    worker = active[-1]
    return StallDiagnosis(
        kind="workers",
        title=f"The program waits for a torch compile worker, pid {worker.pid}, which is busy",
        stage=stages.TRITON_COMPILE,
        confidence="likely",
        evidence=(waits, f"pid {worker.pid} is {scene.doing(worker.pid)}"),
        advice="It is slow or has just started. Wait, or attach again later.",
        pid=worker.pid,
        moves=f"worker pid {worker.pid} uses the processor",
    )


def _pool_deadlock(scene: Scene) -> StallDiagnosis | None:
    waits = _waits_for_pool(scene)
    workers = scene.tree.workers
    blocked = [p for p in workers if _is_in_a_job(scene, p)]
    # A sidecar without workers has just started, or is about to end.
    if not waits or any(_is_active(scene, p) for p in workers) or not workers[1:]:
        return None
    return StallDiagnosis(
        kind="pool-deadlock",
        title="The program waits for torch's compile workers, and all of them are asleep",
        stage=stages.TRITON_COMPILE,
        confidence="likely",
        evidence=(
            waits,
            f"{len(workers)} worker processes, none used the processor, no compiler runs",
            *(f"pid {p.pid} is inside a job" for p in blocked[:3]),
        ),
        advice=(
            "TORCHINDUCTOR_COMPILE_THREADS=1 compiles without workers; --kill-stuck ends the "
            "stuck worker, and torch starts new ones."
        ),
        pid=(blocked or workers)[-1].pid,
        can_end=endable(scene, blocked),
    )


def _is_active(scene: Scene, worker: ProcessSample) -> bool:
    doing = scene.activity.get(worker.pid)
    return doing is None or not doing.is_asleep or worker.state in "RD"


def _is_in_a_job(scene: Scene, worker: ProcessSample) -> bool:
    stacks = scene.stacks.get(worker.pid)
    frames = [f for t in stacks.threads for f in t.frames] if stacks is not None else []
    file = "compile_worker/subproc_pool.py"
    return any(frame.name == "do_job" and frame.file.endswith(file) for frame in frames)


# --- the compiler's Python code -------------------------------------------------------------------


@dataclass(frozen=True)
class _Found:
    """A thread in a stage. Without stacks, the stage is the recorded one and less certain."""

    scene: Scene
    position: Position | None
    stage: str

    @property
    def culprit(self) -> str:
        """The user's outermost frame inside the stage, or else the frame that entered it."""
        if self.position is None:
            return ""
        own = [frame for frame in self.position.inside if is_users_frame(frame)]
        return (own[0] if own else self.position.entry).text

    def stall(self, *evidence: str, **said: Any) -> StallDiagnosis:
        """Return a diagnosis, with the evidence common to all stages."""
        position = self.position
        pid = position.pid if position is not None else self.scene.root.pid
        shown = f"the recording says stage {self.stage}; no stack could be read"
        if position is not None:
            shown = f"stack: {position.entry.function} ({_file_name(position.entry.file)})"
        who = "the process" if pid == self.scene.root.pid else f"pid {pid}"
        said.setdefault("stage", self.stage)
        said.setdefault("culprit", self.culprit)
        return StallDiagnosis(
            confidence="proven" if position is not None else "likely",
            evidence=(shown, f"{who} is {self.scene.doing(pid)}", *evidence),
            pid=pid,
            **said,
        )


def _in(scene: Scene, *wanted: str) -> _Found | None:
    position = scene.at(*wanted)
    if position is not None:
        return _Found(scene, position, position.stage)
    if scene.main_thread is None and scene.recorded_stage in wanted:
        return _Found(scene, None, scene.recorded_stage)
    return None


def _collective(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.COLLECTIVE)
    if found is None or found.position is None:
        return None
    function = found.position.entry.function
    return found.stall(
        kind="collective",
        title=f"The process waits for another rank in {function}",
        stage=stages.USER,
        advice=(
            "Check the other ranks (inductoscope attach PID): the one that is elsewhere holds up "
            "the rest. Ranks that compile different graphs, or compile longer, arrive late."
        ),
        culprit=function,
    )


def _benchmark(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.BENCHMARK)
    if found is None:
        return None
    workers = [p for p in scene.tree.workers if found.position and p.pid == found.position.pid]
    return found.stall(
        kind="benchmark",
        title="A choice is being benchmarked and has not returned",
        stage=stages.AUTOTUNE,
        advice=(
            "torch._inductor.config.autotune_in_subproc = True benchmarks choices in a subprocess, "
            "which can be killed; max_autotune_gemm_backends excludes a kind of choice."
        ),
        culprit=found.position.entry.function if found.position is not None else "",
        can_end=endable(scene, workers),
    )


def _triton_compile(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.TRITON_COMPILE, stages.PTXAS)
    if found is None:
        return None
    pid = found.position.pid if found.position is not None else scene.root.pid
    inside = found.position.inside if found.position is not None else ()
    inner = next((frame.function for frame in reversed(inside) if "triton" in frame.file), "")
    where = f" in {inner}" if inner else ""
    worker = scene.tree.get(pid)
    return found.stall(
        "ptxas is not running: it is LLVM or Triton itself",
        kind="triton-compile",
        title=f"Triton is compiling a kernel in pid {pid}{where} and has not finished",
        stage=stages.TRITON_COMPILE,
        advice=(
            "'inductoscope kernel FILE' compiles the kernel alone under a time limit and shows "
            "which pass it is in."
        ),
        culprit=inner,
        can_end=endable(scene, [worker] if worker is not None else []),
    )


def _fusion(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.FUSION, stages.SCHEDULER)
    if found is None:
        return None
    inside = found.position.inside if found.position is not None else ()
    is_fusion = found.stage == stages.FUSION or any("fus" in frame.function for frame in inside)
    return found.stall(
        kind="fusion" if is_fusion or found.position is None else "scheduler",
        title="The scheduler is in its fusion rounds" if is_fusion else "The scheduler is running",
        stage=stages.SCHEDULER,
        advice=(
            "A smaller torch._inductor.config.max_fusion_size makes rounds cheaper; "
            "'inductoscope fusion RECORDING' shows which pairs were tried repeatedly."
        ),
    )


def _fx_pass(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, *stages.PASSES)
    if found is None:
        return None
    function = pass_function(found.position) if found.position is not None else None
    name = f": {function.text}" if function is not None else "; which one is unknown"
    advice = (
        "Disable passes one by one: TORCHINDUCTOR_DISABLED_PASSES takes parts of their names; "
        "torch._inductor.config.pattern_matcher = False disables the pattern passes."
    )
    if function is not None and is_users_frame(function):
        advice = "The pass is your own code. As a workaround, disable it."
    return found.stall(
        kind="fx-pass",
        title=f"A {found.stage.removesuffix('-pass')} pass has not finished{name}",
        advice=advice,
        culprit=function.text if function is not None else "",
    )


def _lowering(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.LOWERING)
    if found is None:
        return None
    function = lowering_function(found.position) if found.position is not None else None
    name = function.text if function is not None else ""
    return found.stall(
        kind="lowering",
        title=f"The lowering of an operation has not finished{f': {name}' if name else ''}",
        advice=(
            "Keep the operation out of Inductor: torch._inductor.lowering.make_fallback(op), or "
            "run the part around it in eager with torch.compiler.disable."
        ),
        culprit=name,
    )


def _inductor(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, *_OF_INDUCTOR)
    if found is None:
        return None
    is_between = found.stage in (stages.INDUCTOR, stages.PARTITIONER)
    return found.stall(
        kind="inductor",
        title=f"Inductor makes no progress in stage {found.stage}",
        stage=stages.CODEGEN if is_between else found.stage,
        advice="The stack shows where. backend='aot_eager' shows whether only Inductor hangs.",
    )


def _aot(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.AOT, stages.BACKEND)
    if found is None:
        return None
    return found.stall(
        kind="aot",
        title="AOTAutograd is tracing the graph and has not finished",
        stage=stages.AOT,
        advice="backend='eager' skips AOTAutograd: if that helps, AOTAutograd is to blame.",
    )


def _dynamo(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.DYNAMO, stages.GUARDS)
    if found is None:
        return None
    return found.stall(
        kind="dynamo",
        title="Dynamo is tracing a function and has not finished",
        stage=stages.DYNAMO,
        advice=(
            "Dynamo unrolls loops: for a long one, use torch.compiler.disable on the function "
            "around it, or reduce the number of iterations."
        ),
    )


# --- compiled code, the user's code, and the rest -------------------------------------------------


def _kernel(scene: Scene) -> StallDiagnosis | None:
    position = scene.at(stages.GENERATED)
    if position is None:
        return None
    doing, entry = scene.activity.get(position.pid), position.entry
    calm = doing is not None and doing.new_switches == 0 and doing.new_faults == 0
    return StallDiagnosis(
        kind="kernel",
        title="A compiled kernel is running and has not returned "
        f"({_file_name(entry.file)}:{entry.line})",
        stage=stages.RUNTIME,
        confidence="proven" if calm and doing is not None and doing.is_busy else "likely",
        evidence=(
            f"stack: {entry.function} in generated code, line {entry.line}",
            f"the process is {scene.doing(position.pid)}"
            + (", without context switches or page faults" if calm else ""),
        ),
        advice=(
            f"That line of {entry.file} names the kernel. Run with backend='eager' to see "
            "whether the operation itself is slow. On a GPU, set CUDA_LAUNCH_BLOCKING=1."
        ),
        pid=position.pid,
        culprit=f"{entry.file}:{entry.line}",
    )


def _backend(scene: Scene) -> StallDiagnosis | None:
    found = _in(scene, stages.BACKEND)
    inside = found.position.inside if found is not None and found.position is not None else ()
    own = [frame for frame in inside if is_users_frame(frame)]
    if found is None or not own:
        return None
    return found.stall(
        kind="backend",
        title=f"The backend that Dynamo called has not returned: {own[0].text}",
        stage=stages.DYNAMO,
        advice="The backend is your own code, not Inductor.",
        culprit=own[-1].text,
    )


def _user_code(scene: Scene) -> StallDiagnosis | None:
    thread = scene.main_thread
    if thread is None or scene.recorded_stage:
        return None
    own = next((frame for frame in thread.frames if is_users_frame(frame)), thread.frames[0])
    return StallDiagnosis(
        kind="user-code",
        title=f"The program is in its own code: {own.text}",
        stage=stages.USER,
        confidence="proven",
        evidence=(
            "neither the compiler nor generated code is on its stack",
            f"the process is {scene.doing(scene.root.pid)}",
        ),
        advice="torch.compile is not involved at the moment.",
        pid=scene.root.pid,
        culprit=own.text,
    )


def _unknown(scene: Scene) -> StallDiagnosis:
    missing = [stacks.missing for stacks in scene.stacks.values() if stacks.missing]
    stage, pid = scene.recorded_stage, scene.root.pid
    return StallDiagnosis(
        kind="unknown",
        title="The cause of the stall is unknown" + (f" (stage {stage})" if stage else ""),
        stage=stage or stages.NO_STAGE,
        confidence="unknown",
        evidence=(f"the process is {scene.doing(pid)}", *dict.fromkeys(missing)),
        advice="Stacks would show more: pip install py-spy, and permit it to trace processes.",
        pid=pid,
    )


# The first match wins, so causes precede their effects: a process that waits for a lock or compiler
# is inside a stage that would match as well. The last kind always matches.
KINDS: tuple[StallKind, ...] = (
    StallKind(
        ("stopped", "worker-stopped"),
        "A process stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger.",
        _stopped,
    ),
    StallKind(
        ("file-lock",),
        "A thread waits for a lock file that another process holds or left behind.",
        _file_lock,
    ),
    StallKind(("ptxas",), "NVIDIA's assembler runs and does not finish.", _ptxas),
    StallKind(
        ("cpp-compiler",),
        "A C++ compiler, assembler or linker runs and does not finish.",
        _cpp_compiler,
    ),
    StallKind(
        ("worker-died",),
        "A worker is gone and its parent still waits for its result.",
        _worker_died,
    ),
    StallKind(("collective",), "A rank waits for another one.", _collective),
    StallKind(
        ("triton-compile",),
        "Triton compiles in a Python process: its passes or LLVM, not a child process.",
        _triton_compile,
    ),
    StallKind(("benchmark",), "Autotuning benchmarks a choice, which does not return.", _benchmark),
    StallKind(
        ("workers",),
        "The program waits for its workers, and one of them is busy or has just started.",
        _workers_work,
    ),
    StallKind(
        ("pool-deadlock",),
        "The program waits for its workers and none of them does anything.",
        _pool_deadlock,
    ),
    StallKind(
        ("fusion", "scheduler"),
        "The scheduler's fusion rounds: endless, or quadratic in the number of nodes.",
        _fusion,
    ),
    StallKind(("fx-pass",), "A pass over the FX graph does not finish.", _fx_pass),
    StallKind(("lowering",), "The lowering of one operation does not finish.", _lowering),
    StallKind(("inductor",), "Code generation, or Inductor between two of its stages.", _inductor),
    StallKind(("kernel",), "Compiled code runs and has not returned.", _kernel),
    StallKind(
        ("backend",), "Dynamo called a backend of the user, which does not return.", _backend
    ),
    StallKind(("aot",), "AOTAutograd traces and does not finish.", _aot),
    StallKind(("dynamo",), "Dynamo traces the user's function and does not finish.", _dynamo),
    StallKind(
        ("user-code",),
        "The program runs its own code, outside the compiler and compiled code.",
        _user_code,
    ),
    StallKind(("unknown",), "The evidence fits no other rule.", _unknown),
)
