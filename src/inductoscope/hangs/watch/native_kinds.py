"""Rules for stalls outside the compiler's Python code: processes and locks."""

from __future__ import annotations

from inductoscope.hangs.watch.scene import (
    Scene,
    StallDiagnosis,
    endable,
    file_name,
    has_stage,
)
from inductoscope.processes.locks import FileLock
from inductoscope.processes.tree import ProcessSample
from inductoscope.torch_facts import stages

_WAITS = ("waiting", stages.AUTOTUNE)

# Page faults per second of a compiler that makes progress, and how long we believe that it does.
_FAULTS_OF_WORK = 50
_LONGEST_COMPILE = 1800.0


def stopped(scene: Scene) -> StallDiagnosis | None:
    """A process stopped by a signal (SIGSTOP, Ctrl-Z) or a debugger."""
    held = [p for p in scene.tree.processes if p.is_stopped]
    if not held:
        return None
    victim = held[0]
    is_root = victim.pid == scene.root.pid
    what = _role(scene, victim)
    return StallDiagnosis(
        kind="stopped" if is_root else "worker-stopped",
        title=f"{what}, pid {victim.pid}, is stopped by a signal such as SIGSTOP",
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


# --- locks ----------------------------------------------------------------------------------------


def file_lock(scene: Scene) -> StallDiagnosis | None:
    """A thread waits for a lock file that another process holds or left behind."""
    waiting = scene.at("file-lock")
    lock = _lock_in_the_way(scene)
    if waiting is None and (lock is None or not lock.is_wanted):
        return None
    if lock is not None and _is_own(scene, lock):
        return None  # What the holder does is the cause, and other rules name it.
    pid = waiting.pid if waiting is not None else scene.root.pid
    how = (
        f"its stack is in {waiting.entry.function} of {file_name(waiting.entry.file)}"
        if waiting is not None
        else f"the lock file was opened {lock.tries if lock else 0} times while we looked"
    )
    if lock is not None:
        return _held(scene, lock, pid, how)
    return _left_behind(scene, pid, how)


def _lock_in_the_way(scene: Scene) -> FileLock | None:
    """The lock that a thread waits for: one that a stack names, or one with signs of a waiter."""
    named = [lock for lock in scene.locks if scene.wanted_lock and lock.path == scene.wanted_lock]
    if named or scene.wanted_lock:
        return named[0] if named else None
    pids = {process.pid for process in scene.tree.processes}
    mine = [lock for lock in scene.locks if pids & set(lock.waiters)]
    # If the kernel knows the waiter of a lock, that process is the one that waits.
    tried = [lock for lock in scene.locks if not lock.waiters and lock.is_wanted]
    wanted = [lock for lock in (*mine, *tried) if lock.holder != scene.root.pid]
    return wanted[0] if wanted else None


def _is_own(scene: Scene, lock: FileLock) -> bool:
    return scene.tree.get(lock.holder) is not None and bool(scene.tree.compilers)


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
    if known and scene.lock_openers:
        who = ", ".join(map(str, scene.lock_openers))
        state, confidence = f"pid {who} has it open", "likely"
    elif known:
        state, confidence = "no process has it open: it is stale", "proven"
    else:
        state, confidence = "its holder is unknown", "unknown"
    advice = (
        f"Delete {known}: its owner is gone."
        if confidence == "proven"
        else "Look for another program that uses the same cache folder, or use a separate one: "
        "TORCHINDUCTOR_CACHE_DIR."
    )
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


# --- compilers ------------------------------------------------------------------------------------


def ptxas(scene: Scene) -> StallDiagnosis | None:
    """NVIDIA's assembler runs and does not finish."""
    return _compiler(
        scene,
        ["ptxas"],
        kind="ptxas",
        stage=stages.TRITON_COMPILE,
        advice=(
            "End it with --kill-stuck: the choice it compiles then fails and the others "
            "continue. 'inductoscope kernel FILE' compiles the kernel alone."
        ),
    )


def cpp_compiler(scene: Scene) -> StallDiagnosis | None:
    """A C++ compiler, assembler or linker runs and does not finish."""
    return _compiler(
        scene,
        ["C++ compiler", "linker", "assembler"],
        kind="cpp-compiler",
        stage=stages.CPP_COMPILE,
        advice=(
            "Run the command by hand (it is in the JSON) to see whether it ends. A smaller kernel "
            "or less optimisation (torch._inductor.config.aot_inductor.compile_wrapper_opt_level, "
            "cpp flags) may help; CXX selects another compiler."
        ),
    )


def _compiler(
    scene: Scene, kinds: list[str], *, kind: str, stage: str, advice: str
) -> StallDiagnosis | None:
    found = [p for p in scene.tree.compilers if p.compiler in kinds]
    if not found:
        return None
    inner = found[0]
    doing = scene.activity.get(inner.pid)
    state = "is idle" if doing is not None and _family_sleeps(scene, inner) else "is busy"
    moves = _signs_of_work(scene, inner)
    source = next((p.source for p in found if p.source), "")
    return StallDiagnosis(
        kind=kind,
        title=f"{inner.name}, pid {inner.pid}, has run for {inner.age:.0f} s and {state}",
        stage=stage,
        confidence="proven",
        evidence=(
            f"{inner.name} is a child of the program: {scene.doing(inner.pid)}",
            *([f"it compiles {source}"] if source else []),
            *(f"started by {p.text}" for p in found[1:2]),
        ),
        advice=advice,
        pid=inner.pid,
        culprit=source,
        can_end=() if moves else endable(scene, found),
        moves=moves,
    )


def _signs_of_work(scene: Scene, process: ProcessSample) -> str:
    """A compiler that makes progress allocates memory; one that spins in a loop does not.

    Up to the longest time that a compile may take, it is slow; after that, it is stuck.
    """
    doing = scene.activity.get(process.pid)
    if doing is None or doing.is_asleep or process.age > _LONGEST_COMPILE:
        return ""
    if abs(doing.memory_growth) >= 1 << 20 or doing.new_faults >= _FAULTS_OF_WORK * doing.seconds:
        return f"{process.name} uses the processor and its memory changes"
    return ""


def _family_sleeps(scene: Scene, process: ProcessSample) -> bool:
    family = [process, *scene.tree.below(process.pid)]
    seen = [scene.activity[p.pid] for p in family if p.pid in scene.activity]
    return all(item.is_asleep for item in seen)


# --- workers --------------------------------------------------------------------------------------


def worker_died(scene: Scene) -> StallDiagnosis | None:
    """A worker is gone and its parent still waits for its result."""
    dead = [p for p in scene.tree.processes if p.is_zombie and p.parent == scene.root.pid]
    strays = [
        p
        for p in scene.tree.workers
        if scene.tree.get(p.parent) is None and p.pid != scene.root.pid
    ]
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
    if strays and victim in strays:
        return (
            f"The process that runs torch's compile workers is dead and the program still waits; "
            f"pid {victim.pid} is left over"
        )
    return f"A compile worker, pid {victim.pid}, died and the program still waits for its result"


def _waits_for_pool(scene: Scene) -> str:
    """The evidence that the program waits for a worker; empty if there is none."""
    waiting = scene.at(*_WAITS)
    if waiting is not None and waiting.pid == scene.root.pid:
        return f"a thread waits in {waiting.entry.function} ({file_name(waiting.entry.file)})"
    thread = scene.main_thread
    if not is_compiling(scene):
        return ""
    if thread is not None and any(_is_result(f.name, f.file) for f in thread.frames[:6]):
        return "its main thread waits for the result of a future"
    if thread is None and scene.recorded_stage in (stages.TRITON_COMPILE, stages.AUTOTUNE):
        return f"its stream says stage {scene.recorded_stage}"
    return ""


def _is_result(function: str, file: str) -> bool:
    return function in ("result", "wait", "as_completed") and "concurrent/futures" in file


def pool_deadlock(scene: Scene) -> StallDiagnosis | None:
    """The program waits for its workers and none of them does anything."""
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


def workers_work(scene: Scene) -> StallDiagnosis | None:
    """The program waits for its workers, and one of them is busy or has just started."""
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


def _is_active(scene: Scene, worker: ProcessSample) -> bool:
    doing = scene.activity.get(worker.pid)
    return doing is None or not doing.is_asleep or worker.state in "RD"


def _is_in_a_job(scene: Scene, worker: ProcessSample) -> bool:
    stacks = scene.stacks.get(worker.pid)
    if stacks is None or not stacks.has_python:
        return False
    return any(
        frame.name == "do_job" and frame.file.endswith("compile_worker/subproc_pool.py")
        for thread in stacks.threads
        for frame in thread.frames
    )


def is_compiling(scene: Scene) -> bool:
    """Whether any thread of the program is inside the compiler."""
    stacks = scene.stacks.get(scene.root.pid)
    return bool(scene.recorded_stage) or (
        stacks is not None and any(has_stage(thread, stages.DYNAMO) for thread in stacks.threads)
    )
