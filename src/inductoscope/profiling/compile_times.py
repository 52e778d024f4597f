"""Where the compile time of a program went: stages, passes, nodes, lines, compilers, caches.

The program is run twice, recorded: cold in a new private cache, then warm. Self time is what a
stage or a pass spent in itself, total time includes what it called. Compilers and workers run
beside the program, so their seconds add up to more than the program waited for them.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from inductoscope.launch.environment import private_cache
from inductoscope.launch.program import run_recorded
from inductoscope.model.entities import (
    Compile,
    Ending,
    InductorGraph,
    NativeCompile,
    Recording,
)
from inductoscope.model.fold import load
from inductoscope.model.join import GraphJoin
from inductoscope.model.kernels import NativeIndex
from inductoscope.model.process_position import OpenStages
from inductoscope.profiling.compile_growth import MeasuredGrowth
from inductoscope.recording.events import (
    CacheKeyMade,
    PassesTimed,
    ProcessStart,
    StageEnd,
    StageStart,
)
from inductoscope.recording.location import create_recording
from inductoscope.recording.reader import open_recording
from inductoscope.torch_facts import stages

# --- caches ---------------------------------------------------------------------------------------

# '[hash] name: text', and the name of a setting or of an input in brackets.
_FIELD = re.compile(r"\[(?P<hash>\w+)\] (?P<name>[^:]+(?:\[[^\]]*\])?): ?(?P<text>.*)", re.DOTALL)
_MOST_SHOWN = 4
_LONGEST = 60


@dataclass(frozen=True)
class CacheKey:
    """A key that was made in a run, and the fields that it is made of."""

    compile: str
    key: str
    fields: tuple[str, ...]
    process: str = ""


@dataclass(frozen=True)
class CacheUse:
    """A look-up."""

    cache: str
    compile: str
    outcome: str
    key: str
    # Why it missed, as far as that is known.
    why: str = ""


def cache_uses(
    recording: Recording, keys: Sequence[CacheKey], stored: Sequence[CacheKey] = ()
) -> Iterator[CacheUse]:
    """All look-ups of a run; for a graph that was not there, what differs from the nearest key.

    `keys` were made in the run, `stored` in the one before it.
    """
    known = {key.key: key for key in keys}
    for compile_ in recording.compiles:
        for use in compile_.caches:
            why = use.reason
            if use.outcome == "miss" and use.key in known:
                why = _why(known[use.key], [k for k in keys if k.key != use.key], stored)
            yield CacheUse(use.cache, compile_.id, use.outcome, use.key, why)


def _why(key: CacheKey, others: Sequence[CacheKey], stored: Sequence[CacheKey]) -> str:
    if any(other.key == key.key for other in stored):
        return "the run before made the same key: the entry was not stored, or did not fit"
    others = [*others, *stored]
    if not others:
        return "the cache was empty"
    nearest = min(others, key=lambda other: len(differing_fields(key, other)))
    fields = differing_fields(key, nearest)
    more = f" and {len(fields) - _MOST_SHOWN} more" if len(fields) > _MOST_SHOWN else ""
    shown = "; ".join(fields[:_MOST_SHOWN])
    return f"differs from the nearest, compile {nearest.compile}, in {shown}{more}"


def differing_fields(key: CacheKey, other: CacheKey) -> list[str]:
    """The fields of which the hashes differ, or that only one key has, with their values."""
    own, theirs = _by_name(key), _by_name(other)
    found = []
    for name in dict.fromkeys([*own, *theirs]):
        mine, yours = own.get(name), theirs.get(name)
        if mine is None or yours is None:
            found.append(f"{name} (only {'here' if yours is None else 'there'})")
        elif mine[0] != yours[0]:
            found.append(f"{name}{_values(mine[1], yours[1])}")
    return found


def _values(mine: str, yours: str) -> str:
    mine, yours = " ".join(mine.split()), " ".join(yours.split())
    if mine == yours:
        return ""
    at = next((n for n, (a, b) in enumerate(zip(mine, yours, strict=False)) if a != b), 0)
    begin = max(0, at - 15)
    end = begin + _LONGEST
    return f" ({yours[begin:end]} there, {mine[begin:end]} here)"


def _by_name(key: CacheKey) -> dict[str, tuple[str, str]]:
    found = {}
    for text in key.fields:
        match = _FIELD.match(text)
        if match is not None:
            found[match["name"]] = (match["hash"], match["text"])
    return found


# --- the costs of a recorded run ------------------------------------------------------------------


@dataclass
class TimedStage:
    """A stage, over all compiles."""

    stage: str
    own_seconds: float = 0.0
    total_seconds: float = 0.0
    entered: int = 0


@dataclass
class TimedPass:
    """A pass over graphs, whether it changed anything or not."""

    name: str
    stage: str
    own_seconds: float = 0.0
    total_seconds: float = 0.0
    runs: int = 0


@dataclass(frozen=True)
class TimedNode:
    """An FX node, and how long it took to lower it."""

    node: str
    target: str
    graph: str
    seconds: float
    source: str


@dataclass(frozen=True)
class TimedLine:
    """A line of the program, and how long its nodes took to be lowered."""

    source: str
    seconds: float
    nodes: int


@dataclass(frozen=True)
class TimedRound:
    """A round of fusion."""

    graph: str
    number: int
    before: int
    after: int
    seconds: float


@dataclass(frozen=True)
class TimedNative:
    """A call of a native compiler. seconds is None if it never ended."""

    tool: str
    kernel: str
    seconds: float | None
    characters: int
    process: str
    failed: bool
    from_cache: bool


@dataclass(frozen=True)
class TimedCompile:
    """A compile: how long it took, and what came of it."""

    compile: str
    process: str
    function: str
    place: str
    outcome: str
    seconds: float
    nodes: int
    # Whether its graphs came out of a cache.
    from_cache: bool


@dataclass(frozen=True)
class RecordedCosts:
    """The compile time of one run."""

    seconds: float
    compiles: tuple[TimedCompile, ...] = ()
    stages: tuple[TimedStage, ...] = ()
    passes: tuple[TimedPass, ...] = ()
    nodes: tuple[TimedNode, ...] = ()
    lines: tuple[TimedLine, ...] = ()
    rounds: tuple[TimedRound, ...] = ()
    natives: tuple[TimedNative, ...] = ()
    caches: tuple[CacheUse, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def compile_seconds(self) -> float:
        """Seconds of all compiles together."""
        return sum(each.seconds for each in self.compiles)


def recorded_costs(recording: Recording, earlier: Recording | None = None) -> RecordedCosts:
    """Where the compile time of a recording went; the slowest of everything first.

    `earlier` is the run that has filled the cache, if there was one.
    """
    events = _read(recording)
    stored = _read(earlier).keys if earlier is not None else []
    nodes = sorted(_nodes(recording), key=lambda node: -node.seconds)
    seconds = recording.ending.seconds if recording.ending is not None else 0.0
    return RecordedCosts(
        seconds,
        tuple(_timed(compile_) for compile_ in recording.compiles),
        tuple(events.in_order),
        tuple(sorted(events.passes.values(), key=lambda each: -each.own_seconds)),
        tuple(nodes),
        tuple(_lines(nodes)),
        tuple(sorted(_rounds(recording), key=lambda each: -each.seconds)),
        tuple(_natives(recording)),
        tuple(cache_uses(recording, events.keys, stored)),
        tuple(_notes(recording)),
    )


def _timed(compile_: Compile) -> TimedCompile:
    graphs = compile_.inductor
    return TimedCompile(
        compile_.id,
        compile_.process,
        compile_.function,
        compile_.place,
        compile_.outcome,
        compile_.seconds,
        sum(len(graph.lowered) for graph in graphs),
        bool(graphs) and all(graph.cached for graph in graphs),
    )


@dataclass
class _Events:
    """The costs that only the events themselves tell."""

    stages: dict[str, TimedStage] = field(default_factory=dict)
    passes: dict[tuple[str, str], TimedPass] = field(default_factory=dict)
    keys: list[CacheKey] = field(default_factory=list)
    # By stream: the stages that are being run.
    open: dict[str, OpenStages] = field(
        default_factory=lambda: defaultdict(lambda: OpenStages(names_threads=True))
    )

    def leave(self, stream: str, time: float, event: StageEnd) -> None:
        """A stage has ended."""
        spent = self.stages.setdefault(event.stage, TimedStage(event.stage))
        spent.own_seconds += event.seconds
        spent.entered += 1
        inside = self.open[stream]
        ended = inside.leave(event)
        # A stage inside the same stage is part of its total already.
        again = any(
            e.event.stage == event.stage and e.event.thread == event.thread for e in inside.all
        )
        if ended and not again:
            spent.total_seconds += time - ended[0].time
        spent.total_seconds = max(spent.total_seconds, spent.own_seconds)

    def add_passes(self, event: PassesTimed) -> None:
        """Passes over a graph have run."""
        for each in event.passes:
            key = str(each.get("name")), event.stage
            spent = self.passes.setdefault(key, TimedPass(*key))
            spent.own_seconds += float(each.get("own") or 0.0)
            spent.total_seconds += float(each.get("seconds") or 0.0)
            spent.runs += int(each.get("runs") or 0)

    @property
    def in_order(self) -> list[TimedStage]:
        """The stages, as the compiler runs them."""
        order = {name: number for number, name in enumerate(stages.COMPILER_ORDER)}
        return sorted(self.stages.values(), key=lambda each: order.get(each.stage, len(order)))


def _read(recording: Recording) -> _Events:
    found = _Events()
    for entry in open_recording(Path(recording.path)).entries():
        event = entry.event
        if isinstance(event, ProcessStart):
            found.open[entry.stream] = OpenStages(names_threads=event.names_threads)
        elif isinstance(event, StageStart):
            found.open[entry.stream].enter(entry)  # type: ignore[arg-type]
        elif isinstance(event, StageEnd):
            found.leave(entry.stream, entry.time, event)
        elif isinstance(event, PassesTimed):
            found.add_passes(event)
        elif isinstance(event, CacheKeyMade):
            fields = recording.data(event.payload)
            texts = tuple(map(str, fields)) if isinstance(fields, list) else ()
            found.keys.append(CacheKey(event.compile, event.key, texts, entry.stream))
    return found


def _nodes(recording: Recording) -> Iterator[TimedNode]:
    for compile_, graph in _graphs(recording):
        final = GraphJoin(recording, compile_, graph).final
        places = {node.name: str(node.place or "") for node in final.nodes} if final else {}
        for node in graph.lowered:
            yield TimedNode(
                node.node, node.target, graph.key, node.seconds, places.get(node.node, "")
            )


def _graphs(recording: Recording) -> Iterator[tuple[Compile, InductorGraph]]:
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            yield compile_, graph


def _lines(nodes: Iterable[TimedNode]) -> list[TimedLine]:
    found: dict[str, list[float]] = {}
    for node in nodes:
        if node.source:
            found.setdefault(node.source, []).append(node.seconds)
    lines = [TimedLine(place, round(sum(each), 6), len(each)) for place, each in found.items()]
    return sorted(lines, key=lambda line: -line.seconds)


def _rounds(recording: Recording) -> Iterator[TimedRound]:
    for _, graph in _graphs(recording):
        for each in graph.rounds:
            yield TimedRound(graph.key, each.round, each.before, each.after, each.seconds)


def _natives(recording: Recording) -> list[TimedNative]:
    index = NativeIndex(recording)
    names: dict[int, str] = {}
    for _, graph in _graphs(recording):
        for kernel in graph.kernels:
            for native in index.of(kernel):
                names.setdefault(id(native), kernel.name)
    found = [_native(recording, each, names.get(id(each), "")) for each in recording.natives]
    return sorted(found, key=lambda each: -(each.seconds or 0.0))


def _native(recording: Recording, native: NativeCompile, kernel: str) -> TimedNative:
    name = native.kernel or kernel or Path(native.source).name
    return TimedNative(
        native.tool,
        f"{name} ({native.config})" if native.config else name,
        native.seconds,
        len(recording.payload(native.payload)) if native.tool == "c++" else 0,
        native.process,
        bool(native.error) or bool(native.exit_code),
        native.cache_hit,
    )


def _notes(recording: Recording) -> Iterator[str]:
    """Notes on what the numbers leave out, or add up."""
    compiling = {compile_.process for compile_ in recording.compiles}
    if len(compiling) > 1:
        yield f"{len(compiling)} processes compiled; their seconds are added up"
    unfinished = [native for native in recording.natives if native.seconds is None]
    if unfinished:
        yield f"{len(unfinished)} calls of a native compiler never ended"
    for process in recording.processes:
        for stage in process.unfinished:
            where = f" (compile {stage.compile})" if stage.compile else ""
            yield f"{stage.stage} was entered and never left{where}; its time is missing"
        for view in process.views_off:
            yield f"not recorded: {view}"
    failed = [compile_.id for compile_ in recording.compiles if compile_.errors]
    if failed:
        yield f"compile {', '.join(failed[:4])} failed half-way; later stages are missing"


# --- running the program --------------------------------------------------------------------------

Say = Callable[[str], None]

_WARM = "warm"
# The program itself and its native compilers keep the cores busy, too.
_BUSY = 1.5


@dataclass(frozen=True)
class ColdOrWarmRun:
    """A run, how it ended, and where its compile time went."""

    recording: str
    ending: Ending
    costs: RecordedCosts


@dataclass(frozen=True)
class CompileProfile:
    """Where compile time goes."""

    cold: ColdOrWarmRun
    # None if the cold run failed, or compiled nothing.
    warm: ColdOrWarmRun | None = None
    growth: MeasuredGrowth | None = None
    # How many processes wanted a core while it ran, and how many cores there are.
    load: float = 0.0
    cores: int = 1

    @property
    def is_busy(self) -> bool:
        """Whether other programs took so much of the machine that times say little."""
        return self.load > _BUSY * self.cores

    @property
    def is_empty(self) -> bool:
        """Whether nothing was compiled."""
        return not self.cold.costs.compiles


def profile_compile(
    command: Sequence[str], folder: Path, *, stdout: int | None, say: Say
) -> CompileProfile:
    """Run the program twice, recorded: with an empty cache, and with what that run left there.

    The second run's output is not shown: it is the same program.
    """
    with tempfile.TemporaryDirectory(prefix="inductoscope-cache-") as cache:
        variables = private_cache(Path(cache))
        cold = _run(command, folder, variables, stdout)
        if cold.ending.exit_code != 0 or not cold.costs.compiles:
            return _with_load(CompileProfile(cold))
        say("running it again, served from the cache")
        place = create_recording(list(command), output=folder / _WARM)
        with open(os.devnull, "wb") as nowhere:
            warm = _run(command, place, variables, nowhere.fileno(), earlier=folder)
    return _with_load(CompileProfile(cold, warm))


def _with_load(profile: CompileProfile) -> CompileProfile:
    return replace(profile, load=round(os.getloadavg()[0], 1), cores=os.cpu_count() or 1)


def _run(
    command: Sequence[str],
    folder: Path,
    variables: dict[str, str],
    stdout: int | None,
    earlier: Path | None = None,
) -> ColdOrWarmRun:
    ending = run_recorded(command, folder, variables=variables, stdout=stdout)
    before = load(earlier) if earlier is not None else None
    return ColdOrWarmRun(str(folder), ending, recorded_costs(load(folder), before))
