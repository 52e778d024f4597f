"""Everything known about a stalled program: the input to the rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.hangs.watch.frames import Position, main_thread, positions
from inductoscope.processes.dumps import ThreadStack
from inductoscope.processes.locks import FileLock
from inductoscope.processes.stacks import Stacks
from inductoscope.processes.tree import Activity, ProcessSample, Tree
from inductoscope.recording.events.compiling import StageStart


@dataclass(frozen=True)
class Scene:
    """A process tree that was observed for a while. The root is the user's own process."""

    tree: Tree
    activity: Mapping[int, Activity] = field(default_factory=dict)
    stacks: Mapping[int, Stacks] = field(default_factory=dict)
    # The innermost stage that each process has entered, as its stream says.
    stages: Mapping[int, StageStart | None] = field(default_factory=dict)
    locks: Sequence[FileLock] = ()
    # The lock file that a stack names, and who has it open.
    wanted_lock: str = ""
    lock_openers: Sequence[int] = ()
    # Workers that were there before and are not now.
    lost: Sequence[ProcessSample] = ()

    @property
    def root(self) -> ProcessSample:
        """The user's own process."""
        assert self.tree.root is not None
        return self.tree.root

    @property
    def positions(self) -> list[Position]:
        """Where each thread is that is in a stage, the user's own process first."""
        ordered = sorted(self.stacks.values(), key=lambda stacks: stacks.pid != self.root.pid)
        return [position for stacks in ordered for position in positions(stacks)]

    def at(self, *stages: str) -> Position | None:
        """The first thread that is in one of the stages."""
        return next((position for position in self.positions if position.stage in stages), None)

    @property
    def recorded_stage(self) -> str:
        """The innermost stage that the user's own process has entered, by its stream."""
        entered = self.stages.get(self.root.pid)
        return entered.stage if entered else ""

    @property
    def main_thread(self) -> ThreadStack | None:
        """The thread of the user's own process that began the program."""
        stacks = self.stacks.get(self.root.pid)
        return main_thread(stacks) if stacks is not None and stacks.has_python else None

    def doing(self, pid: int) -> str:
        """What a process did while it was observed, in words."""
        found = self.activity.get(pid)
        return found.text if found is not None else "seen once only"
