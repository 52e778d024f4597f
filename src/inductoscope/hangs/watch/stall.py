"""Follows a program under `inductoscope run` and says when it stands still, and at what.

It stands still when a process of the program has written nothing to its stream for the limit of
its stage, has started no new compiler, and none of its workers has written anything either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.hangs.watch.classify import classify
from inductoscope.hangs.watch.following import Stream, Streams
from inductoscope.hangs.watch.frames import mark, user_frame
from inductoscope.hangs.watch.judgement import Judgement
from inductoscope.hangs.watch.looking import look
from inductoscope.hangs.watch.scene import Scene
from inductoscope.model.position import ProcessPosition
from inductoscope.processes.stacks import Stacks, read_stacks
from inductoscope.processes.status import command_of, is_alive
from inductoscope.processes.tree import Tree, sample_tree
from inductoscope.recording.events.code import NativeStart
from inductoscope.vocabulary.stages import (
    AUTOTUNE,
    CPP_COMPILE,
    NO_STAGE,
    SCHEDULER,
    TRITON_COMPILE,
)

# Seconds without a sign of life, by stage, that are long. Native compilers may well take minutes.
LIMITS = {
    CPP_COMPILE: 180.0,
    TRITON_COMPILE: 180.0,
    AUTOTUNE: 300.0,
    SCHEDULER: 120.0,
    NO_STAGE: 600.0,
}
_OTHER_LIMIT = 90.0
_SAMPLE_EVERY = 1.0
_SMALLEST_SPAN = 1.0
_LOOK_AGAIN = 5.0
_LONGEST_PAUSE = 300.0
# A process that gets little of a busy machine may take that much longer.
_STARVED_PATIENCE = 5.0
_WORKER_FILES = ("_inductor/compile_worker/__main__.py", "_inductor/autotune_process.py")


def limit_of(stage: str, given: float | None) -> float:
    """How long a stage may go on without a sign of life."""
    return given if given is not None else LIMITS.get(stage, _OTHER_LIMIT)


@dataclass(frozen=True)
class Stall:
    """A program that stands still: at what, since when, and why."""

    number: int
    pid: int
    rank: str
    # By the recording: the stage that was entered last, and what it is about.
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
    judgement: Judgement
    processes: tuple[dict[str, Any], ...]
    stacks: tuple[dict[str, Any], ...]
    locks: tuple[dict[str, Any], ...]
    # Seconds between the limit and this verdict.
    verdict_after: float = 0.0

    def as_data(self) -> dict[str, Any]:
        """JSON-ready."""
        return asdict(self)


@dataclass
class _Group:
    """One process of the user's with its workers and compilers."""

    stream: Stream
    moved: float
    compilers: frozenset[tuple[int, float]] = frozenset()
    samples: list[Tree] = field(default_factory=list)
    early: Stacks | None = None
    stall: Stall | None = None
    judged: float = 0.0
    # How often it was looked at again after the stall was said.
    looks: int = 0

    @property
    def pid(self) -> int:
        return self.stream.pid

    def is_due(self) -> bool:
        """Whether to look closely: a stall that was said is looked at again now and then."""
        pause = min(_LOOK_AGAIN * 2**self.looks, _LONGEST_PAUSE) if self.stall is not None else 0.0
        return time.monotonic() - self.judged >= pause


@dataclass(frozen=True)
class Moved:
    """A program that stood still goes on."""

    stall: Stall
    after: float
    what: str


Event = Stall | Moved


class Follower:
    """Looks at a recording and its processes each time that it is asked."""

    def __init__(self, folder: Path, limit: float | None = None) -> None:
        """`limit` counts for every stage; without it each stage has its own."""
        self._streams = Streams(folder)
        self._given = limit
        self._groups: dict[Path, _Group] = {}
        self._count = 0

    def look(self) -> Iterator[Event]:
        """What has stood still for too long, or moves again, since the last time."""
        streams = self._streams.catch_up()
        alive = [s for s in streams if not s.position.has_ended and is_alive(s.pid)]
        workers = [s for s in alive if _is_worker(s)]
        for stream in alive:
            if stream not in workers:
                yield from self._look_at(stream, streams)
        yield from self._forget({stream.path for stream in alive})

    def _forget(self, alive: set[Path]) -> Iterator[Moved]:
        """Processes that have ended; one that stood still may have gone on before that."""
        for path in [path for path in self._groups if path not in alive]:
            group = self._groups.pop(path)
            if group.stall is not None and group.stream.moved > group.moved:
                waited = group.stream.moved - group.moved
                yield Moved(group.stall, waited, "it went on, and has ended by now")

    def _look_at(self, stream: Stream, streams: list[Stream]) -> Iterator[Event]:
        group = self._groups.setdefault(stream.path, _Group(stream, stream.moved))
        innermost = stream.position.stages.innermost
        limit = limit_of(innermost.stage if innermost else NO_STAGE, self._given)
        what = self._movement(group, streams, limit)
        if what:
            if group.stall is not None:
                yield Moved(group.stall, time.monotonic() - group.moved, what)
            group.samples.clear()
            group.early, group.stall, group.moved = None, None, time.monotonic()
            group.looks = 0
            return
        quiet = time.monotonic() - group.moved
        if quiet >= limit and group.is_due() and not self._is_elsewhere(group, streams):
            stall = self._judge(group, quiet, limit)
            if stall is not None and _is_news(group.stall, stall):
                self._count += 1
                group.stall = stall = replace(stall, number=self._count)
                yield stall

    def _movement(self, group: _Group, streams: list[Stream], limit: float) -> str:
        """What moved since the last look; empty if nothing did."""
        latest = max((s.moved for s in streams if _belongs(s, group)), default=group.moved)
        if latest > group.moved:
            return "the recording goes on"
        quiet = time.monotonic() - group.moved
        if quiet < limit / 2:
            return ""
        last = group.samples[-1].time if group.samples else 0.0
        if time.monotonic() - last < min(_SAMPLE_EVERY, limit / 4):
            return ""
        tree = sample_tree(group.pid)
        compilers = frozenset((p.pid, p.started) for p in tree.compilers)
        new = compilers - group.compilers if group.samples else frozenset()
        group.compilers = compilers
        group.samples = [*group.samples[:1], tree]
        if not group.stream.position.stages and group.early is None:
            group.early = read_stacks(group.pid)
        return "a new compiler was started" if new else ""

    def _is_elsewhere(self, group: _Group, streams: list[Stream]) -> bool:
        """Whether the process only waits for other processes that are followed themselves.

        A launcher of ranks does, as does a program whose training runs in a child.
        """
        if group.stream.position.stages or not group.samples:
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
        if not group.stream.position.stages and _runs_elsewhere_now(group.early, scene):
            group.moved = time.monotonic()
            group.early = None
            group.samples.clear()
            return None
        if _is_starved(scene) and quiet < _STARVED_PATIENCE * limit:
            return None
        late = time.monotonic() - group.moved - limit
        group.judged = time.monotonic()
        group.looks += group.stall is not None
        group.samples = [scene.tree]
        return describe(group.stream, scene, classify(scene), 0, quiet, limit, late)


def _is_news(known: Stall | None, found: Stall) -> bool:
    """Whether a stall is another one than was said already, after another look at it."""
    if known is None:
        return True
    before, now = known.judgement, found.judgement
    return (before.kind, bool(before.moves)) != (now.kind, bool(now.moves)) and (
        now.confidence != "unknown"
    )


def _is_starved(scene: Scene) -> bool:
    """Whether the program would go on if others let it: ready to, and with little of a core."""
    doing = scene.activity.get(scene.root.pid)
    return scene.root.state == "R" and doing is not None and not doing.is_busy


def _is_worker(stream: Stream) -> bool:
    """Whether a stream is of a process that works for another one of the program."""
    return any(word.endswith(_WORKER_FILES) for word in command_of(stream.pid))


def _belongs(stream: Stream, group: _Group) -> bool:
    """Whether a stream is the group's own, or that of one of its workers."""
    return stream is group.stream or stream.pid in {
        process.pid for sample in group.samples for process in sample.processes
    }


def _runs_elsewhere_now(early: Stacks | None, scene: Scene) -> bool:
    """Outside of the compiler no events are written: there, stacks tell whether it moves."""
    now = scene.stacks.get(scene.root.pid)
    if early is None or now is None or not (early.has_python and now.has_python):
        doing = scene.activity.get(scene.root.pid)
        return doing is None or not doing.is_asleep
    return mark(early) != mark(now)


def describe(
    stream: Stream | None,
    scene: Scene,
    judgement: Judgement,
    number: int,
    quiet: float,
    limit: float,
    late: float = 0.0,
) -> Stall:
    """All that is known of a stall, ready to show and to write."""
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


Say = Callable[[Event], None]
