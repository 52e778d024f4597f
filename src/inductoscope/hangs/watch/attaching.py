"""Attaches to any running process: observes it, and ends a stuck compiler or worker.

Only what torch started is ended: a compiler or a compile worker, with its children. Never the
user's own process.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.hangs.watch.kinds import classify
from inductoscope.hangs.watch.scene import Scene, StallDiagnosis, mark
from inductoscope.hangs.watch.stall import FollowedStream, Stall, Streams, describe, look
from inductoscope.launch.environment import RECORDING_VARIABLE
from inductoscope.processes.ending import end_processes
from inductoscope.processes.stacks import how_to_trace, read_stacks
from inductoscope.processes.status import PROC, is_alive
from inductoscope.processes.tree import (
    ProcessSample,
    Tree,
    environment_of,
    read_process,
    sample_tree,
)

_TIME_TO_END = 1.0


@dataclass(frozen=True)
class EndedProcesses:
    """The processes that were ended, and the reason if one was not."""

    pids: tuple[int, ...]
    names: tuple[str, ...]
    problem: str = ""


def end_stuck(judgement: StallDiagnosis) -> EndedProcesses:
    """End the processes that the diagnosis permits: SIGTERM first, then SIGKILL."""
    # Only processes that are still the same: compilers, workers and their children.
    names = {pid: process.name for pid in judgement.can_end if (process := read_process(pid))}
    if not names:
        return EndedProcesses((), (), "nothing was ended: the program itself is stuck")
    denied = end_processes(names, grace=_TIME_TO_END)
    problem = f"pid {denied[-1]} belongs to another user" if denied else ""
    ended = tuple(pid for pid in names if not is_alive(pid))
    return EndedProcesses(ended, tuple(names[pid] for pid in ended), problem)


# --- Observes any running process for a few seconds, without its cooperation ----------------------

Mark = tuple[str, ...]

_MOST_LOOKS = 6
_FEWEST_PAUSES = 2


@dataclass(frozen=True)
class Attached:
    pid: int
    name: str
    seconds: float
    # The progress that was seen; empty if there was none.
    moves: str
    stall: Stall
    missing: tuple[str, ...]
    ended: EndedProcesses | None = None

    def as_data(self) -> dict[str, Any]:
        return {**asdict(self), "schema": 1, "is_stuck": not self.moves}


def attach(
    pid: int, *, seconds: float = 5.0, native: bool = False, say: Callable[[str], None] = print
) -> Attached:
    process = _python_process(pid)
    stream = recorded_stream(pid)
    first = sample_tree(pid)
    say(f"watching {process.text} for {seconds:g} s")
    marks, trees, wakes = _look_on(pid, first, seconds)
    sign_before = stream.last_sign(math.inf) if stream is not None else 0.0
    if stream is not None:
        stream.catch_up()
    entered = {pid: stream.position.stages.innermost} if stream is not None else {}
    scene = look(pid, first, native=native, stages=entered)
    if scene is None or not scene.root.is_alive:
        raise UsageError(f"Process {pid} ended while it was being watched.")
    _refuse_what_is_closed(scene)
    judgement = classify(scene)
    recorded = stream is not None and stream.last_sign(math.inf) != sign_before
    own = scene.stacks.get(pid)
    if own is not None and own.has_python:
        marks.append(mark(own))
    moves = judgement.moves or what_moves(scene, marks, [*trees, scene.tree], recorded)
    if judgement.kind == "user-code" and not moves:
        moves = _is_woken(wakes, seconds)
    if moves and judgement.kind != "stopped":
        judgement = replace(judgement, moves=moves, can_end=())
    quiet = _quiet(scene, judgement, seconds)
    return Attached(
        pid=pid,
        name=process.name,
        seconds=seconds,
        moves=judgement.moves,
        stall=describe(stream, scene, judgement, 1, quiet, seconds),
        missing=tuple(dict.fromkeys(s.missing for s in scene.stacks.values() if s.missing)),
    )


_LIST_PYTHON = "'pgrep -af python' lists Python processes."


def _python_process(pid: int) -> ProcessSample:
    process = read_process(pid) if pid > 0 else None
    if process is None:
        raise UsageError(f"There is no process {pid}. {_LIST_PYTHON}")
    if not process.is_alive:
        raise UsageError(
            f"Process {pid} ({process.name}) is already dead: its parent, pid {process.parent}, "
            "has not waited for it. Attach to the parent."
        )
    if not process.is_python and not _has_python_inside(process):
        raise UsageError(
            f"Process {pid} is not a Python process: it is {process.name} "
            f"({' '.join(process.command)[:200] or 'a kernel thread'}). {_LIST_PYTHON}"
        )
    return process


def _has_python_inside(process: ProcessSample) -> bool:
    """Check whether a program with another name embeds Python."""
    folder = PROC / str(process.pid)
    try:
        if "python" in os.path.basename(os.readlink(folder / "exe")):
            return True
        return "libpython" in (folder / "maps").read_text()
    except PermissionError as error:
        raise ToolFailure(
            f"Process {process.pid} ({process.name}) does not look like Python, and the system "
            f"does not let this user read it. {_LIST_PYTHON} If it embeds Python: {how_to_trace()}."
        ) from error
    except OSError:
        return False


def _refuse_what_is_closed(scene: Scene) -> None:
    """Refuse another user's process: too little of it can be read to diagnose anything."""
    pid = scene.root.pid
    stacks = scene.stacks.get(pid)
    if stacks is not None and stacks.has_python:
        return
    try:
        os.listdir(PROC / str(pid) / "fd")
    except PermissionError as error:
        raise ToolFailure(
            f"Process {pid} belongs to another user and cannot be read: {how_to_trace()}."
        ) from error
    except OSError:
        return


def recorded_stream(pid: int) -> FollowedStream | None:
    """Return the stream of a process that runs under `inductoscope run`."""
    folder = environment_of(pid).get(RECORDING_VARIABLE)
    if not folder or not Path(folder).is_dir():
        return None
    streams = Streams(Path(folder)).catch_up()
    return next((s for s in streams if s.pid == pid and not s.position.has_ended), None)


def _look_on(pid: int, first: Tree, seconds: float) -> tuple[list[Mark], list[Tree], list[int]]:
    """Sample the stack and the process tree over some time.

    Returns also how often the process woke up between samples, since sampling itself may wake it.
    """
    marks: list[Mark] = []
    trees, wakes = [first], []
    until = time.monotonic() + seconds
    pause = max(0.2, seconds / _MOST_LOOKS)
    while time.monotonic() < until:
        if first.root is not None:
            stacks = read_stacks(pid, is_stopped=first.root.is_stopped)
            marks += [mark(stacks)] if stacks.has_python else []
        left_alone = read_process(pid)
        time.sleep(max(0.0, min(pause, until - time.monotonic())))
        trees.append(sample_tree(pid))
        wakes.append(_new_switches(left_alone, trees[-1].root))
    return marks, trees, wakes


def _new_switches(before: ProcessSample | None, after: ProcessSample | None) -> int:
    return 0 if before is None or after is None else max(0, after.switches - before.switches)


def _is_woken(wakes: list[int], seconds: float) -> str:
    """Report repeated wake-ups: calls too short to be sampled are seen only by the sleeps between.

    A process that waits for one thing sleeps all the time.
    """
    if sum(wake > 0 for wake in wakes) < max(_FEWEST_PAUSES, len(wakes) - 1):
        return ""  # The last pause may be too short for anything to happen.
    return f"its own code pauses and goes on, {sum(wakes)} times in {seconds:g} s"


def what_moves(scene: Scene, marks: list[Mark], trees: list[Tree], recorded: bool) -> str:
    """Describe the progress that was observed; empty if there was none."""
    if recorded:
        return "it is still recording events"
    seen = [{(p.pid, p.started) for p in tree.compilers} for tree in trees]
    if seen and any(later - seen[0] for later in seen[1:]) and seen[-1] != seen[0]:
        return "compilers start and finish"
    if len(set(marks)) > 1:
        return "its stack changes"
    doing = scene.activity.get(scene.root.pid)
    is_active = doing is not None and (doing.new_switches > 5 or doing.new_faults > 5)
    if is_active and scene.at("generated") is not None:
        return "compiled code is called repeatedly"
    return ""


def _quiet(scene: Scene, judgement: StallDiagnosis, seconds: float) -> float:
    """Return the least time it has been stuck: a compiler's age can exceed the observation."""
    stuck = scene.tree.get(judgement.pid)
    is_child = stuck is not None and stuck.pid != scene.root.pid and bool(stuck.compiler)
    return stuck.age if stuck is not None and is_child else seconds
