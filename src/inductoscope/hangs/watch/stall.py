"""Stall detection: follows a recorded program, applies time limits, and describes each stall."""

from __future__ import annotations

import getpass
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.hangs.watch.kinds import classify
from inductoscope.hangs.watch.scene import Scene, StallDiagnosis, mark, user_frame
from inductoscope.model.process_position import ProcessPosition
from inductoscope.processes.locks import FileLock, count_tries, held_locks, who_has_open
from inductoscope.processes.stacks import Stacks, read_stacks, spied_locals
from inductoscope.processes.status import cpu_seconds, is_alive, read_status
from inductoscope.processes.tree import (
    ProcessSample,
    Tree,
    activity,
    command_of,
    environment_of,
    sample_tree,
)
from inductoscope.recording.events import StageStart, TracingContinues
from inductoscope.recording.layout import stream_paths
from inductoscope.recording.reader import StreamReader
from inductoscope.torch_facts.stages import (
    AUTOTUNE,
    CPP_COMPILE,
    FILE_LOCK,
    NATIVE_COMPILES,
    SCHEDULER,
    TRITON_COMPILE,
    WRAPPER,
)

# Seconds by stage. Native compilers may well take minutes.
_BY_STAGE = {CPP_COMPILE: 180.0, TRITON_COMPILE: 180.0, AUTOTUNE: 300.0, SCHEDULER: 120.0}


@dataclass(frozen=True)
class Patience:
    """Time limits without progress in seconds, by position; None if not watched."""

    # Limit in any compiler stage that is not in `by_stage`.
    in_stage: float = 90.0
    by_stage: Mapping[str, float] = field(default_factory=dict)
    # Limit outside the compiler, where no progress is recorded.
    outside: float | None = None
    # Limit in a call of a compiled graph that also runs in eager and in float64.
    in_call: float | None = None
    # Factor on the time of eager, once that has returned from the call; at least `in_stage`.
    times_eager: float = 20.0
    # Limit while a native compiler should run and no process uses the processor at all.
    idle: float | None = None
    # Factor for a process that others keep from the processor.
    when_starved: float = 5.0
    # The largest factor for a large compile: one that is still tracing, or that took long to get to
    # its current stage.
    when_large: float = 5.0

    @property
    def most_signs(self) -> float:
        """The most seconds that a process may spend tracing with nothing else recorded."""
        return (self.when_large - 1) * self.in_stage

    def limit(self, position: ProcessPosition) -> float | None:
        """Return how long a process may stay at its position."""
        usual = self.usual_limit(position)
        if usual is None or not position.stages:
            return usual
        # The time so far shows how large a compile is: it may be silent for as long again. Extra
        # time that was granted for tracing is subtracted.
        most = self.when_large * usual - position.signs
        return max(usual, min(position.seconds_inside, most))

    def usual_limit(self, position: ProcessPosition) -> float | None:
        """Return the limit for a small compile."""
        innermost = position.stages.innermost
        if innermost is not None:
            return self.by_stage.get(innermost.stage, self.in_stage)
        if position.call is None or position.is_judged or self.in_call is None:
            return self.outside
        if position.eager_seconds is None:
            return self.in_call
        return max(self.in_stage, self.times_eager * position.eager_seconds)


def patience_of_run(seconds: float | None) -> Patience:
    """Return the limits for `run`, which reports stalls; `seconds`, if given, apply everywhere."""
    if seconds is None:
        return Patience(by_stage=_BY_STAGE, outside=600.0)
    return Patience(in_stage=seconds, outside=seconds, when_large=1.0)


def patience_of_doctor(seconds: float) -> Patience:
    """Return the limits for the doctor, which ends programs that stall."""
    return Patience(in_stage=seconds, in_call=5 * seconds, idle=seconds / 3, when_starved=4.0)


# --- Evidence that a process is stuck which is better than the time that has passed ---------------
#
# A compile that is merely slow shows no such evidence: it uses the processor, and its rounds end.

# The most rounds of fusion that torch makes for a graph, with some to spare.
MOST_ROUNDS = 20
# Seconds without other progress after which more rounds than MOST_ROUNDS count as a loop.
_AFTER_ROUNDS = 2.0
# Processor time that a sleeping process may use from one look to the next: one of its threads may
# poll.
_ASLEEP = 0.02
# Kinds in which a sleeping process waits for something else, which may still move.
_MAY_MOVE = ("file-lock", "stopped", "worker-stopped", "collective", "workers", "unknown")


@dataclass
class Stillness:
    """The time since which no process of a tree has been active."""

    since: float | None = None
    last: Tree | None = None

    def look(self, tree: Tree) -> None:
        if self.last is None or not _is_still(self.last, tree):
            self.since = tree.time
        self.last = tree

    def starts_again(self) -> None:
        """Reset; nothing is known of the time before."""
        self.since = self.last = None


def _is_still(before: Tree, now: Tree) -> bool:
    if any(process.state in "RD" for process in now.processes):
        return False
    used = {(p.pid, p.started): p.cpu_seconds for p in before.processes}
    return used.keys() == {(p.pid, p.started) for p in now.processes} and all(
        p.cpu_seconds - used[p.pid, p.started] <= _ASLEEP for p in now.processes
    )


def sooner(limit: float, position: ProcessPosition, still: Stillness, patience: Patience) -> float:
    """Return the limit, or less of it if there is evidence that the process is stuck."""
    if position.rounds > MOST_ROUNDS:
        return min(limit, _AFTER_ROUNDS)
    if not waits_for_compiler(position) or still.since is None or still.last is None:
        return limit
    idle = patience.idle
    if idle is None or still.last.time - still.since < 0.75 * idle:
        return limit
    return min(limit, idle)


def waits_for_compiler(position: ProcessPosition) -> bool:
    """Check whether a native compiler is running, or should be."""
    innermost = position.stages.innermost
    return innermost is not None and innermost.stage in (*NATIVE_COMPILES, WRAPPER)


def is_stuck_by_itself(judgement: StallDiagnosis) -> bool:
    """Check whether a sleeping process waits for nothing that may still move."""
    return judgement.kind not in _MAY_MOVE


# --- Follows the streams of a recording while the program writes them -----------------------------


@dataclass
class FollowedStream:
    """The progress of one process, read from its stream as it grows."""

    reader: StreamReader
    position: ProcessPosition = field(default_factory=ProcessPosition)
    # The time of the last progress.
    moved: float = field(default_factory=time.monotonic)
    # The time of the last sign of tracing, which may go on forever.
    traced: float = 0.0

    @property
    def pid(self) -> int:
        """The process that writes the stream; 0 if the file name lacks a pid."""
        return self.reader.pid

    def catch_up(self) -> None:
        for entry in self.reader.read_new():
            self.position.take(entry)
            if entry.event.is_progress:
                self.moved = time.monotonic()
            elif isinstance(entry.event, TracingContinues):
                self.traced = time.monotonic()

    def last_sign(self, most: float) -> float:
        """Return the time of the last progress; up to `most` seconds of tracing count as some."""
        return self.traced if 0 < self.position.signs <= most else self.moved


class Streams:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, FollowedStream] = {}

    def catch_up(self) -> list[FollowedStream]:
        """Return every stream of the program, read to its current end."""
        for path in stream_paths(self._folder):
            self._known.setdefault(path, FollowedStream(StreamReader(path))).catch_up()
        return [stream for stream in self._known.values() if stream.position.role != "launcher"]


# --- Looks at a process tree closely: stacks, locks and what moved since an earlier sample --------

# Locals of functions that wait for a lock, in torch and in the filelock library.
_LOCK_NAMES = frozenset({"lock_filename", "lock_path", "lock_file", "lockfile", "build_directory"})
_MOST_STACKS = 8
_LOOK_FOR_TRIES = 0.5

Stages = Mapping[int, StageStart | None]


def look(
    root: int, before: Tree, *, stages: Stages | None = None, native: bool = False
) -> Scene | None:
    """Observe the process against an earlier sample; None if it is gone."""
    now = sample_tree(root)
    if now.root is None:
        return None
    # Stacks of the root, and of the Python processes below it.
    others = [p for p in now.processes[1:] if p.is_python and p.is_alive]
    stacks = {
        p.pid: read_stacks(p.pid, native=native, is_stopped=p.is_stopped)
        for p in [now.root, *others][:_MOST_STACKS]
    }
    alive = {process.pid for process in now.processes}
    return _with_locks(
        Scene(
            tree=now,
            activity=activity(before, now),
            stacks=stacks,
            stages=stages or {},
            lost=[p for p in before.workers if p.pid not in alive],
        )
    )


def _with_locks(scene: Scene) -> Scene:
    """Return the scene with the awaited lock, if the process may be waiting for one."""
    waiting = scene.at(FILE_LOCK)
    if waiting is None and scene.main_thread is not None:
        return scene
    named = _lock_named(spied_locals(waiting.pid, _LOCK_NAMES)) if waiting is not None else ""
    locks = held_locks()
    if named:
        return replace(scene, locks=locks, wanted_lock=named, lock_openers=who_has_open(named))
    return replace(scene, locks=_with_tries(locks, _cache_folders(scene.root.pid)))


def _lock_named(found: Mapping[str, str]) -> str:
    """Return the path of a lock file among local variables."""
    for name in ("lock_filename", "lock_path", "lock_file", "lockfile"):
        if os.path.isabs(found.get(name, "")):
            return found[name]
    folder = found.get("build_directory", "")
    return os.path.join(folder, "lock") if os.path.isabs(folder) else ""


def _with_tries(locks: list[FileLock], folders: list[str]) -> list[FileLock]:
    """Return the locks, and how often each lock in this program's cache folders is tried."""
    prefixes = tuple(folder.rstrip("/") + "/" for folder in folders)
    near = [lock for lock in locks if lock.path.startswith(prefixes)]
    tries = count_tries([lock.path for lock in near], _LOOK_FOR_TRIES) if near else {}
    tried = [replace(lock, tries=tries.get(lock.path, 0)) for lock in near]
    return [*tried, *(lock for lock in locks if lock.waiters and lock not in near)]


def _cache_folders(pid: int) -> list[str]:
    """Return the cache folders of a process, from its environment."""
    environment = environment_of(pid)
    given = environment.get("TORCHINDUCTOR_CACHE_DIR")
    temporary = environment.get("TMPDIR") or tempfile.gettempdir()
    user = environment.get("USER") or getpass.getuser()
    default = os.path.join(temporary, f"torchinductor_{user}")
    extensions = environment.get("TORCH_EXTENSIONS_DIR")
    return [folder for folder in (given, default, extensions) if folder]


# --- Follows a recorded program while it runs, and reports when and where it stalls ---------------
#
# A process has stalled when it has recorded no progress for longer than the watcher's patience, has
# started no new compiler, and none of its workers has recorded any progress either.

_SAMPLE_EVERY = 1.0
_SMALLEST_SPAN = 1.0
_LOOK_AGAIN = 5.0
_LONGEST_PAUSE = 300.0
_WORKER_FILES = ("_inductor/compile_worker/__main__.py", "_inductor/autotune_process.py")


@dataclass(frozen=True)
class Stall:
    """A program without progress: its position, since when, and why."""

    number: int
    pid: int
    rank: str
    # From the recording: the innermost open stage, and its subject.
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


@dataclass
class _Group:
    """A user process with its workers and compilers."""

    stream: FollowedStream
    moved: float
    # The processor time that the process had used at `moved`.
    used: float
    compilers: frozenset[tuple[int, float]] = frozenset()
    samples: list[Tree] = field(default_factory=list)
    still: Stillness = field(default_factory=Stillness)
    early: Stacks | None = None
    stall: Stall | None = None
    # The time when others were last seen to keep it from the processor.
    starved: float = 0.0
    judged: float = 0.0
    # The number of examinations since the stall was reported.
    looks: int = 0

    @property
    def pid(self) -> int:
        return self.stream.pid

    def is_due(self) -> bool:
        """Check whether to look closely; a reported stall is examined again, ever less often."""
        pause = min(_LOOK_AGAIN * 2**self.looks, _LONGEST_PAUSE) if self.stall is not None else 0.0
        return time.monotonic() - self.judged >= pause

    @property
    def is_inside(self) -> bool:
        """Whether the process is in the compiler, or in a checked call of a compiled graph."""
        return bool(self.stream.position.stages) or self.stream.position.call is not None

    def starts_again(self) -> None:
        self.samples.clear()
        self.still.starts_again()
        self.moved, self.used = time.monotonic(), cpu_seconds(self.pid)
        self.early = None


@dataclass(frozen=True)
class Resumed:
    stall: Stall
    after: float
    what: str


Event = Stall | Resumed


class StallWatcher:
    """A detector of stalls that checks a recording and its processes on each call."""

    def __init__(self, folder: Path, patience: Patience) -> None:
        self._streams = Streams(folder)
        self._patience = patience
        self._groups: dict[Path, _Group] = {}
        self._count = 0

    def look(self) -> Iterator[Event]:
        """Yield an event for each stall or resumption since the last look."""
        streams = self._streams.catch_up()
        alive = [s for s in streams if not s.position.has_ended and is_alive(s.pid)]
        workers = [s for s in alive if _is_worker(s)]
        for stream in alive:
            if stream not in workers:
                yield from self._look_at(stream, streams)
        yield from self._forget({stream.reader.path for stream in alive})

    def _forget(self, alive: set[Path]) -> Iterator[Resumed]:
        """Drop ended processes; a stalled one may have resumed before its end."""
        for path in [path for path in self._groups if path not in alive]:
            group = self._groups.pop(path)
            if group.stall is not None and group.stream.moved > group.moved:
                waited = group.stream.moved - group.moved
                yield Resumed(group.stall, waited, "it continued and has ended")

    def _look_at(self, stream: FollowedStream, streams: list[FollowedStream]) -> Iterator[Event]:
        if stream.reader.path not in self._groups:
            self._groups[stream.reader.path] = _Group(stream, stream.moved, cpu_seconds(stream.pid))
        group = self._groups[stream.reader.path]
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
        """Return the limit for a starved process: a multiple of the limit for small compiles."""
        usual = self._patience.usual_limit(group.stream.position) or limit
        return max(limit, self._patience.when_starved * min(limit, usual))

    def _movement(self, group: _Group, streams: list[FollowedStream], limit: float | None) -> str:
        """Describe the progress since the last look; empty if there was none."""
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
        """Return how many seconds without progress to allow before sampling processes."""
        if self._patience.idle is None or not waits_for_compiler(group.stream.position):
            return limit / 2
        return min(limit / 2, self._patience.idle / 5)

    def _is_elsewhere(self, group: _Group, streams: list[FollowedStream]) -> bool:
        """Check whether the process only waits for other processes that are followed themselves.

        A launcher of ranks does, as does a program whose training runs in a child.
        """
        if group.is_inside or not group.samples:
            return False
        below = {p.pid for p in group.samples[-1].below(group.pid)}
        return any(
            s.pid in below and not s.position.has_ended and not _is_worker(s) for s in streams
        )

    def _judge(self, group: _Group, quiet: float, limit: float) -> Stall | None:
        """Return the stall; None if a close look shows that the program moves after all."""
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
    """Check whether this stall differs from the one that was reported."""
    if known is None:
        return True
    before, now = known.judgement, found.judgement
    return (before.kind, bool(before.moves)) != (now.kind, bool(now.moves)) and (
        now.confidence != "unknown"
    )


def _is_starved(group: _Group, limit: float) -> bool:
    """Check whether other programs keep the process, or its compiler, from the processor.

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
    """Check whether the writer of a stream is a worker of another process of the program."""
    return any(word.endswith(_WORKER_FILES) for word in command_of(stream.pid))


def _belongs(stream: FollowedStream, group: _Group) -> bool:
    """Check whether a stream belongs to the group's process or one of its workers."""
    return stream is group.stream or stream.pid in {
        process.pid for sample in group.samples for process in sample.processes
    }


def _runs_elsewhere_now(early: Stacks | None, scene: Scene) -> bool:
    """Check by stacks whether the program moves outside the compiler, unrecorded."""
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
    """Return everything known about a stall, ready to show and to write."""
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
        kernel=", ".join(
            name
            for entry in position.natives.values()
            if (name := entry.event.kernel or entry.event.source)
        ),
        choices=tuple(position.choices),
        last_node=position.last_node,
        seconds=round(quiet, 1),
        limit=limit,
        judgement=judgement,
        processes=tuple(_process(scene, process) for process in scene.tree.processes),
        stacks=tuple(asdict(stacks) for stacks in scene.stacks.values()),
        locks=tuple(asdict(lock) for lock in scene.locks if lock.path or lock.is_wanted),
        verdict_after=round(late, 2),
    )


def _process(scene: Scene, process: ProcessSample) -> dict[str, Any]:
    role = process.compiler or ("compile worker" if process.is_torch_worker else "child")
    activity = scene.activity.get(process.pid)
    shown = asdict(process)
    del shown["group"]
    return {
        **shown,
        "role": "program" if process.pid == scene.root.pid else role,
        "doing": scene.doing(process.pid),
        "activity": asdict(activity) if activity is not None else None,
    }
