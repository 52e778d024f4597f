"""The choices of one operation, sorted by how far they got."""

from __future__ import annotations

from dataclasses import dataclass, replace

from inductoscope.hangs.logs.choice import Choice
from inductoscope.hangs.logs.groups import Group


@dataclass(frozen=True)
class StuckChoices:
    """The choices of one operation: those that never finished, and those that did."""

    compile: str
    operation: str
    stuck: tuple[Choice, ...]
    finished: tuple[Choice, ...]
    # Not begun, because the stuck ones occupy all threads: nothing is known about them.
    waiting: tuple[Choice, ...] = ()
    failed: tuple[Choice, ...] = ()
    # Seconds that the slowest finished one took.
    longest: float = 0.0
    # Whether they were being benchmarked, rather than compiled ahead of that.
    while_timed: bool = False

    def joined_with(self, other: StuckChoices) -> StuckChoices:
        """What two runs of the program show together; what was stuck in one of them is stuck."""
        stuck = {_key(choice): choice for choice in (*self.stuck, *other.stuck)}
        finished = {_key(choice): choice for choice in (*self.finished, *other.finished)}
        waiting = {_key(choice): choice for choice in (*self.waiting, *other.waiting)}
        return replace(
            self,
            stuck=tuple(stuck.values()),
            finished=tuple(c for key, c in finished.items() if key not in stuck),
            waiting=tuple(c for key, c in waiting.items() if key not in {**stuck, **finished}),
            longest=max(self.longest, other.longest),
        )


def _key(choice: Choice) -> tuple[str, str]:
    """Identifies a choice in every run; the name of its file may be another one."""
    settings = repr(sorted(choice.configuration.items())) if choice.configuration else choice.name
    return choice.kind, settings


def choices_of(group: Group) -> StuckChoices:
    """The choices of a group; before torch waits for it, unfinished ones count as stuck."""
    return StuckChoices(
        group.origin.compile_id,
        group.operation,
        stuck=tuple(state.choice for state in group.stuck or group.pending),
        finished=tuple(state.choice for state in group.finished),
        waiting=tuple(state.choice for state in group.queued),
        failed=tuple(state.choice for state in group.failed),
        longest=max((state.seconds or 0.0 for state in group.finished), default=0.0),
    )
