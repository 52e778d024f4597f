"""Evidence that a process is stuck which is better than the time that has passed.

A compile that is only slow shows none of it: it uses the processor, and its rounds come to an end.
"""

from __future__ import annotations

from dataclasses import dataclass

from inductoscope.hangs.watch.judgement import StallDiagnosis
from inductoscope.hangs.watch.patience import Patience
from inductoscope.model.position import ProcessPosition
from inductoscope.processes.tree import Tree
from inductoscope.vocabulary.stages import NATIVE_COMPILES, WRAPPER

# The most rounds of fusion that torch makes for a graph, with some to spare.
MOST_ROUNDS = 20
# Seconds without any other progress after which more rounds than that are a loop.
_AFTER_ROUNDS = 2.0
# Processor time that a sleeping process may use from one look to the next: a thread of it may look
# whether something has happened.
_ASLEEP = 0.02
# A sleeping process waits for something else here, which may well move.
_MAY_MOVE = ("file-lock", "stopped", "worker-stopped", "collective", "workers", "unknown")


@dataclass
class Stillness:
    """Since when no process of a tree has done anything."""

    since: float | None = None
    last: Tree | None = None

    def look(self, tree: Tree) -> None:
        """Compare the processes with those of the last look."""
        if self.last is None or not _is_still(self.last, tree):
            self.since = tree.time
        self.last = tree

    def starts_again(self) -> None:
        """Nothing is known of the time until now."""
        self.since = self.last = None


def _is_still(before: Tree, now: Tree) -> bool:
    if any(process.state in "RD" for process in now.processes):
        return False
    used = {(p.pid, p.started): p.cpu_seconds for p in before.processes}
    return used.keys() == {(p.pid, p.started) for p in now.processes} and all(
        p.cpu_seconds - used[p.pid, p.started] <= _ASLEEP for p in now.processes
    )


def sooner(limit: float, position: ProcessPosition, still: Stillness, patience: Patience) -> float:
    """The limit, or less of it where something shows that the process is stuck."""
    if position.rounds > MOST_ROUNDS:
        return min(limit, _AFTER_ROUNDS)
    if not waits_for_compiler(position) or still.since is None or still.last is None:
        return limit
    idle = patience.idle
    if idle is None or still.last.time - still.since < 0.75 * idle:
        return limit
    return min(limit, idle)


def waits_for_compiler(position: ProcessPosition) -> bool:
    """Whether a native compiler is at work, or should be."""
    innermost = position.stages.innermost
    return innermost is not None and innermost.stage in (*NATIVE_COMPILES, WRAPPER)


def is_stuck_by_itself(judgement: StallDiagnosis) -> bool:
    """Whether what sleeps does not wait for something that may move."""
    return judgement.kind not in _MAY_MOVE
