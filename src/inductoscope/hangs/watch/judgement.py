"""What the rules say about a stalled program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.hangs.watch.scene import Scene
from inductoscope.processes.tree import ProcessSample


@dataclass(frozen=True)
class StallDiagnosis:
    """The kind of a stall, and how it was established."""

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
    # What moves, where it is slow rather than stuck; empty for a stall.
    moves: str = ""


def endable(scene: Scene, processes: Sequence[ProcessSample]) -> tuple[int, ...]:
    """Compilers and workers among the processes, and what they started; never the user's own."""
    found: list[int] = []
    for process in processes:
        if process.pid == scene.root.pid or not (process.compiler or process.is_torch_worker):
            continue
        below = [p.pid for p in scene.tree.below(process.pid)]
        found += [pid for pid in (*reversed(below), process.pid) if pid not in found]
    return tuple(found)


def file_name(path: str) -> str:
    """The last two parts of a path, which is what torch names a generated file by."""
    return "/".join(path.split("/")[-2:])
