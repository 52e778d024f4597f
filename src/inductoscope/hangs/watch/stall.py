"""Follows a recorded program while it runs, and reports when and where it stalls.

A process has stalled when it has recorded no progress for longer than the watcher's patience, has
started no new compiler, and none of its workers has recorded any progress either.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.hangs.watch.classify import classify
from inductoscope.hangs.watch.evidence import (
    Stillness,
    is_stuck_by_itself,
    sooner,
    waits_for_compiler,
)
from inductoscope.hangs.watch.following import FollowedStream, Streams
from inductoscope.hangs.watch.frames import mark, user_frame
from inductoscope.hangs.watch.judgement import StallDiagnosis
from inductoscope.hangs.watch.looking import look
from inductoscope.hangs.watch.patience import Patience
from inductoscope.hangs.watch.scene import Scene
from inductoscope.model.position import ProcessPosition
from inductoscope.processes.stacks import Stacks, read_stacks
from inductoscope.processes.status import command_of, cpu_seconds, is_alive, read_status
from inductoscope.processes.tree import Tree, sample_tree
from inductoscope.recording.events.code import NativeStart

_SAMPLE_EVERY = 1.0
_SMALLEST_SPAN = 1.0
_LOOK_AGAIN = 5.0
_LONGEST_PAUSE = 300.0
_WORKER_FILES = ("_inductor/compile_worker/__main__.py", "_inductor/autotune_process.py")


@dataclass(frozen=True)
class Stall:
    """A program that makes no progress: where, since when, and why."""

    number: int
    pid: int
    rank: str
    # According to the recording: the stage that was entered last, and what it is about.
    stage: str
    detail: str
    compile: str
    function: str
    source: str
    kernel: str
    choices: tuple[str, ...]
    last_node: str
    seconds: float
    limit: float
    judgement: StallDiagnosis
    processes: tuple[dict[str, Any], ...]
    stacks: tuple[dict[str, Any], ...]
    locks: tuple[dict[str, Any], ...]
    # Seconds between the limit, which is later for a process that is starved, and this verdict.
    verdict_after: float = 0.0

    def as_data(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass
class _Group:
    """One of the user's processes with its workers and compilers."""

    stream: FollowedStream
    moved: float
    # The processor time that it had used by then.
    used: float
    compilers: frozenset[tuple[int, float]] = frozenset()
    samples: list[Tree] = field(default_factory=list)
    still: Stillness = field(default_factory=Stillness)
    early: Stacks | None = None
    stall: Stall | None = None
    # When others were last seen to keep it from the processor.
    starved: float = 0.0
    judged: float = 0.0
    # How often it was examined again after the stall was reported.
    looks: int = 0

    @property
    def pid(self) -> int:
        return self.stream.pid

    def is_due(self) -> bool:
        """Whether to look closely: a reported stall is examined again from time to time."""
        pause = min(_LOOK_AGAIN * 2**self.looks, _LONGEST_PAUSE) if self.stall is not None else 0.0
        return time.monotonic() - self.judged >= pause

    @property
    def is_inside(self) -> bool:
        """Whether it is in the compiler, or in a call of a compiled graph that is checked."""
        return bool(self.stream.position.stages) or self.stream.position.call is not None

    def starts_again(self) -> None:
        """Note that it has just made progress."""
        self.samples.clear()
        self.still.starts_again()
        self.moved, self.used = time.monotonic(), cpu_seconds(self.pid)
        self.early = None


@dataclass(frozen=True)
class Resumed:
    """A stalled program that continues."""

    stall: Stall
    after: float
    what: str


Event = Stall | Resumed


class StallWatcher:
    """Looks at a recording and its processes each time it is asked."""

    def __init__(self, folder: Path, patience: Patience) -> None:
        self._streams = Streams(folder)
        self._patience = patience
        self._groups: dict[Path, _Group] = {}
        self._count = 0

    def look(self) -> Iterator[Event]:
        """What has stalled, or moves again, since the last look."""
        streams = self._streams.catch_up()
        alive = [s for s in streams if not s.position.has_ended and is_alive(s.pid)]
        workers = [s for s in alive if _is_worker(s)]
        for stream in alive:
            if stream not in workers:
                yield from self._look_at(stream, streams)
        yield from self._forget({stream.path for stream in alive})

    def _forget(self, alive: set[Path]) -> Iterator[Resumed]:
        """Processes that have ended; one that had stalled may have gone on before that."""
        for path in [path for path in self._groups if path not in alive]:
            group = self._groups.pop(path)
            if group.stall is not None and group.stream.moved > group.moved:
                waited = group.stream.moved - group.moved
                yield Resumed(group.stall, waited, "it continued and has ended")

    def _look_at(self, stream: FollowedStream, streams: list[FollowedStream]) -> Iterator[Event]:
        if stream.path not in self._groups:
            self._groups[stream.path] = _Group(stream, stream.moved, cpu_seconds(stream.pid))
        group = self._groups[stream.path]
        limit = self._patience.limit(stream.position)
        if limit is not None:
            limit = sooner(limit, stream.position, group.still, self._patience)
        what = self._movement(group, streams, limit)
        if what:
            if group.stall is not None:
                yield Resumed(group.stall, time.monotonic() - group.moved, what)
            group.starts_again()
            group.stall, group.looks = None, 0
        elif limit is not None:
            yield from self._reported(group, streams, limit)

    def _reported(
        self, group: _Group, streams: list[FollowedStream], limit: float
    ) -> Iterator[Stall]:
        quiet = time.monotonic() - group.moved
        if quiet < limit or not group.is_due() or self._is_elsewhere(group, streams):
            return
        if quiet < self._limit_when_starved(group, limit) and _is_starved(group, limit):
            group.starved = time.monotonic()
            return
        stall = self._judge(group, quiet, limit)
        is_early = limit == self._patience.idle and waits_for_compiler(group.stream.position)
        if stall is not None and is_early and not is_stuck_by_itself(stall.judgement):
            group.still.starts_again()
        elif stall is not None and _is_news(group.stall, stall):
            self._count += 1
            group.stall = stall = replace(stall, number=self._count)
            yield stall

    def _limit_when_starved(self, group: _Group, limit: float) -> float:
        """Not several times what a large compile gets: several times the usual limit."""
        usual = self._patience.usual_limit(group.stream.position) or limit
        return max(limit, self._patience.when_starved * min(limit, usual))

    def _movement(self, group: _Group, streams: list[FollowedStream], limit: float | None) -> str:
        """The progress since the last look; empty if there was none."""
        most = self._patience.most_signs
        signs = (s.last_sign(most) for s in streams if _belongs(s, group))
        latest = max(signs, default=group.moved)
        if latest > group.moved:
            return "new events were recorded"
        quiet = time.monotonic() - group.moved
        if limit is None or quiet < self._look_from(group, limit):
            return ""
        last = group.samples[-1].time if group.samples else 0.0
        if time.monotonic() - last < min(_SAMPLE_EVERY, limit / 4):
            return ""
        tree = sample_tree(group.pid)
        compilers = frozenset((p.pid, p.started) for p in tree.compilers)
        new = compilers - group.compilers if group.samples else frozenset()
        group.compilers = compilers
        group.samples = [*group.samples[:1], tree]
        group.still.look(tree)
        if not group.is_inside and group.early is None:
            group.early = read_stacks(group.pid)
        return "a new compiler started" if new else ""

    def _look_from(self, group: _Group, limit: float) -> float:
        """After how many seconds without progress to look at the processes."""
        if self._patience.idle is None or not waits_for_compiler(group.stream.position):
            return limit / 2
        return min(limit / 2, self._patience.idle / 5)

    def _is_elsewhere(self, group: _Group, streams: list[FollowedStream]) -> bool:
        """Whether the process only waits for other processes that are followed themselves.

        A launcher of ranks does, as does a program whose training runs in a child.
        """
        if group.is_inside or not group.samples:
            return False
        below = {p.pid for p in group.samples[-1].below(group.pid)}
        return any(
            s.pid in below and not s.position.has_ended and not _is_worker(s) for s in streams
        )

    def _judge(self, group: _Group, quiet: float, limit: float) -> Stall | None:
        """The stall; None if a close look shows that the program moves after all."""
        before = group.samples[0] if group.samples else sample_tree(group.pid)
        if time.monotonic() - before.time < min(_SMALLEST_SPAN, limit):
            return None
        scene = look(group.pid, before, stages={group.pid: group.stream.position.stages.innermost})
        if scene is None:
            return None
        if not group.is_inside and _runs_elsewhere_now(group.early, scene):
            group.starts_again()
            return None
        late = time.monotonic() - max(group.moved + limit, group.starved)
        group.judged = time.monotonic()
        group.looks += group.stall is not None
        group.samples = [scene.tree]
        return describe(group.stream, scene, classify(scene), 0, quiet, limit, late)


def _is_news(known: Stall | None, found: Stall) -> bool:
    """Whether this stall differs from the one that was reported."""
    if known is None:
        return True
    before, now = known.judgement, found.judgement
    return (before.kind, bool(before.moves)) != (now.kind, bool(now.moves)) and (
        now.confidence != "unknown"
    )


def _is_starved(group: _Group, limit: float) -> bool:
    """Whether others keep it, or the compiler it waits for, from the processor.

    Such a process is ready to run but hardly runs.
    """
    compilers = group.samples[-1].compilers if group.samples else ()
    since = {group.pid: group.used, **{compiler.pid: 0.0 for compiler in compilers}}
    found = ((read_status(pid), used) for pid, used in since.items())
    return any(
        status is not None and status.state == "R" and status.cpu_seconds - used < limit / 2
        for status, used in found
    )


def _is_worker(stream: FollowedStream) -> bool:
    """Whether a stream is of a process that works for another one of the program."""
    return any(word.endswith(_WORKER_FILES) for word in command_of(stream.pid))


def _belongs(stream: FollowedStream, group: _Group) -> bool:
    """Whether a stream is the group's own, or that of one of its workers."""
    return stream is group.stream or stream.pid in {
        process.pid for sample in group.samples for process in sample.processes
    }


def _runs_elsewhere_now(early: Stacks | None, scene: Scene) -> bool:
    """Whether it moves outside the compiler: nothing is recorded there, so stacks decide."""
    now = scene.stacks.get(scene.root.pid)
    if early is None or now is None or not (early.has_python and now.has_python):
        doing = scene.activity.get(scene.root.pid)
        return doing is None or not doing.is_asleep
    return mark(early) != mark(now)


def describe(
    stream: FollowedStream | None,
    scene: Scene,
    judgement: StallDiagnosis,
    number: int,
    quiet: float,
    limit: float,
    late: float = 0.0,
) -> Stall:
    """Everything known about a stall, ready to show and to write."""
    position = stream.position if stream is not None else ProcessPosition()
    innermost = position.stages.innermost
    own = scene.stacks.get(scene.root.pid)
    frame = user_frame(own) if own is not None else None
    return Stall(
        number=number,
        pid=scene.root.pid,
        rank=position.rank,
        stage=innermost.stage if innermost else judgement.stage,
        detail=innermost.detail if innermost else "",
        compile=position.compile,
        function=position.functions.get(position.compile, ""),
        source=f"{frame.file}:{frame.line}" if frame is not None else "",
        kernel=_kernel(entry.event for entry in position.natives.values()),
        choices=tuple(position.choices),
        last_node=position.last_node,
        seconds=round(quiet, 1),
        limit=limit,
        judgement=judgement,
        processes=tuple(_process(scene, pid) for pid in [p.pid for p in scene.tree.processes]),
        stacks=tuple(asdict(stacks) for stacks in scene.stacks.values()),
        locks=tuple(asdict(lock) for lock in scene.locks if lock.path or lock.is_wanted),
        verdict_after=round(late, 2),
    )


def _kernel(natives: Iterable[NativeStart]) -> str:
    return ", ".join(filter(None, (native.kernel or native.source for native in natives)))


def _process(scene: Scene, pid: int) -> dict[str, Any]:
    process = scene.tree.get(pid)
    assert process is not None
    return {
        **asdict(process),
        "role": role_of(scene, pid),
        "doing": scene.doing(pid),
        "activity": asdict(scene.activity[pid]) if pid in scene.activity else None,
    }


def role_of(scene: Scene, pid: int) -> str:
    """What a process is in the program."""
    process = scene.tree.get(pid)
    if process is None or pid == scene.root.pid:
        return "program"
    if process.compiler:
        return process.compiler
    return "compile worker" if process.is_torch_worker else "child"
