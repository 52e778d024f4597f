"""The observations on a stalled program (processes, stacks, locks), and the diagnosis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.processes.locks import FileLock
from inductoscope.processes.stacks import StackFrame, Stacks, ThreadStack
from inductoscope.processes.tree import Activity, ProcessSample, Tree
from inductoscope.recording.events import StageStart
from inductoscope.torch_facts.frames import is_users
from inductoscope.torch_facts.stage_lookup import entered_stage
from inductoscope.torch_facts.stages import GENERATED, LOWERING, PASSES


@dataclass(frozen=True)
class StallDiagnosis:
    """The kind of a stall, and the evidence for it."""

    kind: str
    title: str
    stage: str
    # 'proven', 'likely' or 'unknown'.
    confidence: str
    evidence: tuple[str, ...]
    advice: str
    # The process that is stuck: a compiler, a worker, or the user's own.
    pid: int = 0
    # The function, pass or file that it is stuck in.
    culprit: str = ""
    # Processes that may be ended to get past it; never the user's own.
    can_end: tuple[int, ...] = ()
    # The observed progress if it is slow rather than stuck; empty for a stall.
    moves: str = ""


# --- What a stack says: the stage of the compiler that a thread is in, and whose code it runs -----
#
# A stage is known by the function that torch enters it with. Of several on one stack the innermost
# counts: Inductor runs inside AOTAutograd, which runs inside Dynamo.

# Files of the frames between a group of passes and the pass itself.
_PASS_PLUMBING = (
    "graph_transform_observer.py",
    "contextlib.py",
    "torch/_dynamo/utils.py",
    "torch/_inductor/compile_fx.py",
    "inductoscope/inside/observe.py",
    "torch/_utils_internal.py",
    "torch/_inductor/custom_graph_pass.py",
)
_GROUPS = ("post_grad_passes", "joint_graph_passes", "pre_grad_passes")


@dataclass(frozen=True)
class Position:
    pid: int
    thread: str
    stage: str
    # The frame that the stage was entered with.
    entry: StackFrame
    # Frames inside the stage, outermost first.
    inside: tuple[StackFrame, ...]


def is_users_frame(frame: StackFrame) -> bool:
    """Check whether a frame is at a line of the user's code."""
    return bool(frame.line) and is_users(frame.file)


def stage_of(frame: StackFrame) -> str:
    """Return the stage that a frame enters; empty for any other frame."""
    return entered_stage(frame.file, frame.name)


def position_of(pid: int, thread: ThreadStack) -> Position | None:
    for number, frame in enumerate(thread.frames):
        stage = stage_of(frame)
        if stage:
            inside = tuple(reversed(thread.frames[:number]))
            return Position(pid, thread.name, stage, frame, inside)
    return None


def has_stage(thread: ThreadStack, stage: str) -> bool:
    return any(stage_of(frame) == stage for frame in thread.frames)


def user_frame(stacks: Stacks) -> StackFrame | None:
    """Return the innermost user frame, preferably of the main thread."""
    threads = sorted(stacks.threads, key=lambda thread: thread.name != "MainThread")
    frames = (frame for thread in threads for frame in thread.frames)
    return next(filter(is_users_frame, frames), None)


def pass_function(position: Position) -> StackFrame | None:
    """Return the function of the running pass within a group of passes."""
    for frame in position.inside:
        is_group = frame.name.endswith(_GROUPS) and "torch/_inductor" in frame.file
        if not is_group and not frame.file.endswith(_PASS_PLUMBING):
            return frame
    return None


def lowering_function(position: Position) -> StackFrame | None:
    plumbing = ("torch/_inductor/graph.py", "torch/fx/interpreter.py", *_PASS_PLUMBING)
    for frame in position.inside:
        if not frame.file.endswith(plumbing) and frame.name not in ("wrapped", "watched"):
            return frame
    return None


def main_thread(stacks: Stacks) -> ThreadStack | None:
    """Return the thread that began the program."""
    named = [thread for thread in stacks.threads if thread.name == "MainThread"]
    return next(iter(named or stacks.threads), None)


def mark(stacks: Stacks) -> tuple[str, ...]:
    """Return the main thread's position; it stays equal while the thread makes no progress.

    Inside a stage, frames change all the time, even in an endless loop: only the stages count, with
    the current pass or lowering. Outside stages, all frames count.
    """
    thread = main_thread(stacks) if stacks.has_python else None
    if thread is None:
        return ()
    position = position_of(stacks.pid, thread)
    if position is None:
        return tuple(f"{frame.file}:{frame.function}" for frame in thread.frames)
    stages = [stage for frame in reversed(thread.frames) if (stage := stage_of(frame))]
    found = [stage for number, stage in enumerate(stages) if stage not in stages[:number]]
    if position.stage == GENERATED:
        found.append(f"{position.entry.file}:{position.entry.line}")
    inner = pass_function(position) if position.stage in PASSES else None
    inner = lowering_function(position) if position.stage == LOWERING else inner
    return (*found, f"{inner.file}:{inner.function}" if inner is not None else "")


# --- Everything known about a stalled program: the input to the rules -----------------------------


@dataclass(frozen=True)
class Scene:
    """A process tree that was observed for a while. The root is the user's own process."""

    tree: Tree
    activity: Mapping[int, Activity] = field(default_factory=dict)
    stacks: Mapping[int, Stacks] = field(default_factory=dict)
    # The innermost stage that each process has entered, from its stream.
    stages: Mapping[int, StageStart | None] = field(default_factory=dict)
    locks: Sequence[FileLock] = ()
    # The lock file that a stack names, and who has it open.
    wanted_lock: str = ""
    lock_openers: Sequence[int] = ()
    # Workers that have disappeared since the first sample.
    lost: Sequence[ProcessSample] = ()

    @property
    def root(self) -> ProcessSample:
        assert self.tree.root is not None
        return self.tree.root

    @property
    def positions(self) -> list[Position]:
        """The positions of all threads that are in a stage, the user's own process first."""
        ordered = sorted(self.stacks.values(), key=lambda stacks: stacks.pid != self.root.pid)
        threads = ((stacks.pid, thread) for stacks in ordered for thread in stacks.threads)
        return [found for pid, thread in threads if (found := position_of(pid, thread))]

    def at(self, *stages: str) -> Position | None:
        return next((position for position in self.positions if position.stage in stages), None)

    @property
    def recorded_stage(self) -> str:
        """The innermost stage that the user's own process has entered, from its stream."""
        entered = self.stages.get(self.root.pid)
        return entered.stage if entered else ""

    @property
    def main_thread(self) -> ThreadStack | None:
        """The thread of the user's own process that began the program."""
        stacks = self.stacks.get(self.root.pid)
        return main_thread(stacks) if stacks is not None and stacks.has_python else None

    def doing(self, pid: int) -> str:
        """Describe the activity of a process while it was observed."""
        found = self.activity.get(pid)
        return found.text if found is not None else "seen once only"
