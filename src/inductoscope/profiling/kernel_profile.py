"""The kernel profile: what was measured, joined with what was recorded and what the machine can do.

Kernels are sorted by the time that they lost against their floor, over all calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure
from inductoscope.launch.program import run_recorded
from inductoscope.model.entities import (
    Compile,
    Ending,
    InductorGraph,
    Kernel,
    Recording,
)
from inductoscope.model.fold import load
from inductoscope.model.fx import FxNode
from inductoscope.model.join import GraphJoin
from inductoscope.model.wrapper_lines import kernels_by_call, kernels_by_line
from inductoscope.processes.children import ChildCall, ChildLimits, run_child
from inductoscope.profiling.kernel_work import FUNCTIONS, GraphWork, KernelWork
from inductoscope.profiling.machine import (
    TOLERANCE,
    Floor,
    MachineLimits,
    floor_of,
    is_measured,
    limits_of,
)
from inductoscope.profiling.orders import QUIET, Orders
from inductoscope.profiling.statistics import Sample
from inductoscope.profiling.timings import (
    EVENTS,
    FOLDER,
    PROFILER,
    CallTimes,
    GraphTimes,
    KernelTimes,
    ProcessTimes,
    SiteTimes,
    WholeCall,
    all_calls,
    read_kernel_times,
    read_times,
)
from inductoscope.recording.values import members
from inductoscope.targets.work_list import captured_graphs
from inductoscope.torch_facts.stages import AOT_INDUCTOR

# The limits of a device with so many threads; None where they cannot be measured.
LimitsOf = Callable[[str], MachineLimits | None]


@dataclass(frozen=True)
class KernelProfile:
    """One call of a kernel in a wrapper, with one set of sizes."""

    graph: str
    function: str
    kernel: str
    language: str
    # The line of the wrapper.
    line: int
    device: str
    sizes: Mapping[str, int]
    how: str
    # Calls after the first one; 0 if there was only that, which is then the sample.
    calls: int
    seconds: Sample
    work: KernelWork = field(default_factory=KernelWork)
    floor: Floor | None = None
    operations: tuple[str, ...] = ()
    # FX nodes of the graph, and the user's lines that they come from.
    nodes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    # The operations of the graph that Dynamo captured.
    captured: tuple[str, ...] = ()
    compile: str = ""
    phase: str = ""
    # Whether the sizes are those that the graph was compiled with.
    has_recorded_sizes: bool = True

    @property
    def total(self) -> float:
        """Seconds of all calls, each as long as the median."""
        return self.seconds.median * max(self.calls, 1)

    @property
    def lost(self) -> float:
        """Seconds beyond the floor, in all calls; all of them where there is no floor."""
        least = self.floor.seconds * max(self.calls, 1) if self.floor else 0.0
        return max(0.0, self.total - least)

    @property
    def share(self) -> float | None:
        """The floor as a part of the time: 1 is as fast as the machine can."""
        if self.floor is None or self.seconds.median <= 0:
            return None
        return self.floor.seconds / self.seconds.median

    @property
    def beats_limit(self) -> bool:
        """Whether it is faster than what was measured as the machine's limit."""
        return self.share is not None and self.share > TOLERANCE


@dataclass(frozen=True)
class GraphProfile:
    """One compiled graph with one set of sizes: the whole wrapper, and its kernels."""

    graph: str
    function: str
    place: str
    phase: str
    sizes: Mapping[str, int]
    how: str
    device: str
    calls: int
    seconds: Sample
    first: float
    # The medians of all its kernels together, and the time of a call in which none runs.
    kernel_seconds: float
    between: Sample
    threads: int = 1
    other_sizes: int = 0
    compile: str = ""
    has_recorded_sizes: bool = True
    # A call that took about as long as most, kernel by kernel.
    usual: WholeCall | None = None

    @property
    def idle(self) -> float:
        """The part of a call in which none of its kernels runs."""
        whole = self.seconds.median
        return self.between.median / whole if self.between.count and whole > 0 else 0.0


@dataclass(frozen=True)
class Profile:
    """Everything that is known of where time goes in a program."""

    functions: tuple[CallTimes, ...]
    graphs: tuple[GraphProfile, ...]
    kernels: tuple[KernelProfile, ...]
    machines: tuple[MachineLimits, ...] = ()
    notes: tuple[str, ...] = ()
    # Processes that called compiled graphs, such as the ranks of a distributed program.
    processes: int = 1
    # Whether Inductor compiled a graph: what Dynamo gives up on runs in eager.
    has_graphs: bool = True

    @property
    def is_empty(self) -> bool:
        """Whether no compiled call was made."""
        return not self.functions and not self.graphs


def build_profile(
    recording: Recording,
    calls: Sequence[ProcessTimes],
    kernels: Sequence[KernelTimes],
    limits_of: LimitsOf,
) -> Profile:
    """Join what was measured with what was recorded."""
    loaded = {
        graph.wrapper_path: _LoadedGraph(recording, compile_, graph)
        for compile_ in recording.compiles
        for graph in compile_.inductor
        if graph.wrapper_path
    }
    graphs: list[GraphProfile] = []
    rows: list[KernelProfile] = []
    machines: dict[str, MachineLimits | None] = {}
    for times in (times for process in kernels for times in process.graphs):
        known = loaded.get(times.path) or _package_of(times, loaded.values())
        if times.device not in machines:
            machines[times.device] = limits_of(times.device)
        found = list(_kernels(times, known, machines[times.device]))
        rows += found
        graphs.append(_graph(times, known, found))
    return Profile(
        all_calls(calls),
        tuple(graphs),
        tuple(sorted(rows, key=lambda row: -row.lost)),
        tuple(machine for machine in machines.values() if machine is not None),
        tuple(dict.fromkeys(note for process in kernels for note in process.notes)),
        max(1, sum(bool(process.graphs) for process in kernels)),
        any(compile_.inductor for compile_ in recording.compiles),
    )


class _LoadedGraph:
    """A recorded graph, ready to be looked up by the lines of its wrapper."""

    def __init__(self, recording: Recording, compile_: Compile, graph: InductorGraph) -> None:
        self.compile, self.graph = compile_, graph
        self.work = GraphWork(GraphJoin(recording, compile_, graph))
        self._recording = recording

    @cached_property
    def _by_line(self) -> Mapping[int, Kernel]:
        return kernels_by_line(self._recording, self.graph)

    @cached_property
    def _by_call(self) -> Mapping[tuple[str, int], tuple[int, Kernel]]:
        return kernels_by_call(self._recording, self.graph)

    @property
    def has_unknown_sizes(self) -> bool:
        """Whether its sizes vary, and its wrapper does not say which ones a call has."""
        return bool(self._by_call) and bool(self.work.hints)

    @cached_property
    def _nodes(self) -> Mapping[int, list[FxNode]]:
        """The FX nodes that each kernel computes."""
        join, found = self.work.join, dict[int, list[FxNode]]()
        for node in join.final.calls if join.final else ():
            for kernel in join.kernels(join.leaves(node)):
                found.setdefault(id(kernel), []).append(node)
        return found

    def has_recorded_sizes(self, sizes: Mapping[str, int]) -> bool:
        """Whether these are the sizes that the graph was compiled with."""
        recorded = all(self.work.hints.get(name) == size for name, size in sizes.items())
        return recorded and not self.has_unknown_sizes

    def place_of(self, site: SiteTimes) -> tuple[int, Kernel] | None:
        """The line of the wrapper that calls a kernel, and that kernel."""
        if not site.line and self._by_call:
            return self._by_call.get((site.kernel, site.occurrence))
        found = self._kernel_at(site)
        return None if found is None else (site.line, found)

    def with_lines(self, call: WholeCall) -> WholeCall:
        """A call with the lines and names of its kernels; a C++ wrapper was traced without."""
        if not self._by_call:
            return call
        seen: Counter[str] = Counter()
        spans = []
        for span in call.kernels:
            line, kernel = self._by_call.get((span.kernel, seen[span.kernel]), (span.line, None))
            seen[span.kernel] += 1
            spans.append(replace(span, line=line, kernel=kernel.name if kernel else span.kernel))
        return replace(call, kernels=tuple(spans))

    def _kernel_at(self, site: SiteTimes) -> Kernel | None:
        found = self._by_line.get(site.line)
        if found is not None and found.name == site.kernel:
            return found
        named = [kernel for kernel in self.graph.kernels if kernel.name == site.kernel]
        return named[0] if len(named) == 1 else None

    def nodes_of(self, kernel: Kernel) -> list[FxNode]:
        """The FX nodes that a kernel computes."""
        return self._nodes.get(id(kernel), [])


def _kernels(
    times: GraphTimes, known: _LoadedGraph | None, machine: MachineLimits | None
) -> Iterator[KernelProfile]:
    for site in times.sites:
        if not site.sample:
            continue
        line, kernel = (known.place_of(site) if known else None) or (site.line, None)
        nodes = known.nodes_of(kernel) if known is not None and kernel is not None else []
        work = KernelWork()
        if known is not None and kernel is not None:
            work = _work(known, kernel, times)
        yield KernelProfile(
            graph=known.graph.key if known else times.path,
            function=known.compile.function if known else "",
            kernel=kernel.name if kernel else site.kernel,
            language=kernel.language if kernel else "",
            line=line,
            device=times.device,
            sizes=times.sizes,
            how=times.how,
            calls=site.count,
            seconds=site.seconds,
            work=work,
            floor=floor_for(work, machine),
            operations=tuple(dict.fromkeys(node.operation for node in nodes)),
            nodes=tuple(node.name for node in nodes),
            places=tuple(dict.fromkeys(_place(node) for node in nodes if node.place)),
            captured=tuple(dict.fromkeys(name for node in nodes for name in node.origins)),
            compile=known.compile.id if known else "",
            phase=known.graph.phase if known else "",
            has_recorded_sizes=known is None or known.has_recorded_sizes(times.sizes),
        )


def _package_of(times: GraphTimes, graphs: Iterable[_LoadedGraph]) -> _LoadedGraph | None:
    """The graph that a package was compiled from: the only one that calls the same kernels."""
    if not times.sites or any(site.line for site in times.sites):
        return None
    packaged = [graph for graph in graphs if graph.compile.flow == AOT_INDUCTOR]
    found = [graph for graph in packaged if all(graph.place_of(site) for site in times.sites)]
    return found[0] if len(found) == 1 else None


def _work(known: _LoadedGraph, kernel: Kernel, times: GraphTimes) -> KernelWork:
    if known.has_unknown_sizes:
        return KernelWork(missing="the sizes of its calls are not known in a C++ wrapper")
    # What torch allows there says nothing about a CPU.
    in_tf32 = () if times.device == "cpu" else times.in_tf32
    return known.work.of(kernel, times.sizes, in_tf32)


def _place(node: FxNode) -> str:
    frame = node.place
    return f"{frame.file}:{frame.line}" if frame else ""


def floor_for(work: KernelWork, machine: MachineLimits | None) -> Floor | None:
    """The least time for work on a machine; None where that is not known."""
    if machine is None:
        return None
    moved = None
    if work.read is not None and work.written is not None:
        moved = work.read, work.written
    return floor_of(machine, moved, work.matrix, work.operations, work.functions)


def _graph(
    times: GraphTimes, known: _LoadedGraph | None, kernels: Sequence[KernelProfile]
) -> GraphProfile:
    whole = times.seconds if times.sample else Sample((times.first / 1e9,))
    return GraphProfile(
        graph=known.graph.key if known else times.path,
        function=known.compile.function if known else "",
        place=known.compile.place if known else "",
        phase=known.graph.phase if known else "",
        sizes=times.sizes,
        how=times.how,
        device=times.device,
        calls=len(times.sample) if times.how in (PROFILER, EVENTS) else max(0, times.calls - 1),
        seconds=whole,
        first=times.first / 1e9,
        kernel_seconds=sum(row.seconds.median for row in kernels),
        between=times.seconds_between,
        threads=times.threads,
        other_sizes=times.other_sizes,
        compile=known.compile.id if known else "",
        has_recorded_sizes=known is None or known.has_recorded_sizes(times.sizes),
        usual=known.with_lines(times.usual) if known and times.usual else times.usual,
    )


# --- The same graphs in eager, and where compiled code is slower than that ------------------------
#
# Operations of the program and kernels are many to many: a kernel computes several operations,
# and an operation may become several kernels. A region is the least set of both that belong
# together, so that the time of its kernels and the time of its operations are of the same work.

_SECONDS = 120.0
# Eager and compiled ran in different processes: a smaller difference says nothing.
_CLEARLY = 1.1
# Fewer calls have no quartiles worth the name.
_FEWEST = 5


@dataclass(frozen=True)
class EagerTimes:
    """One captured graph in eager, in seconds."""

    compile: str
    calls: Sample
    backward: Sample
    # By operation of the captured graph.
    operations: Mapping[str, Sample] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparedRegion:
    """Kernels and operations that do the same work."""

    graph: str
    kernels: tuple[str, ...]
    operations: tuple[str, ...]
    places: tuple[str, ...]
    # Of each kernel, and of each operation in eager.
    compiled_times: tuple[Sample, ...]
    eager_times: tuple[Sample, ...]

    @property
    def compiled(self) -> float:
        """Seconds of all its kernels, each as long as its median."""
        return sum(times.median for times in self.compiled_times)

    @property
    def eager(self) -> float:
        """Seconds of all its operations in eager, each as long as its median."""
        return sum(times.median for times in self.eager_times)

    @property
    def is_slower(self) -> bool:
        """Whether eager is clearly faster."""
        return _is_clearly_slower(self.compiled_times, self.eager_times)


def measure_eager(recording: Recording, threads: int, notes: list[str]) -> tuple[EagerTimes, ...]:
    """Time every captured graph in eager, in a child; adds a note for what could not be timed."""
    orders = list(captured_graphs(recording, exported=True))
    if not orders:
        return ()
    found: list[EagerTimes] = []
    call = ChildCall(
        "inductoscope.inside.profiling.eager_child:time_eager",
        {"graphs": [asdict(order) for order in orders], "threads": threads},
    )
    ended = run_child(call, ChildLimits(_SECONDS, memory_gib=1024.0))
    for event in ended.events:
        if event["event"] == "eager":
            found.append(_times(event))
        elif event["event"] == "left-out":
            notes.append(f"{event['compile']} was not timed in eager: {event['why']}")
    if ended.exit_code is None:
        notes.append("Eager took too long and was not timed to its end.")
    return tuple(found)


def _times(event: Mapping[str, Any]) -> EagerTimes:
    nodes = members(event.get("nodes"))
    return EagerTimes(
        str(event.get("compile", "")),
        _sample(event.get("calls")),
        _sample(event.get("backward")),
        {name: _sample(values) for name, values in nodes.items()},
    )


def _sample(values: Any) -> Sample:
    found = values if isinstance(values, list) else []
    return Sample(tuple(value / 1e9 for value in found if isinstance(value, (int, float))))


def eager_of(graph: GraphProfile, times: Iterable[EagerTimes]) -> Sample | None:
    """The time in eager of what a graph computes; None where it is not known.

    A graph with sizes that vary was timed with the sizes that it was compiled with.
    """
    found = next((t for t in times if t.compile == graph.compile), None)
    if found is None or not graph.has_recorded_sizes:
        return None
    sample = found.backward if graph.phase == "backward" else found.calls
    return sample if sample.count else None


def is_slower_than_eager(graph: GraphProfile, eager: Sample) -> bool:
    """Whether compiled calls are clearly slower than eager."""
    return graph.calls > 0 and _is_clearly_slower([graph.seconds], [eager])


def _is_clearly_slower(compiled: Sequence[Sample], eager: Sequence[Sample]) -> bool:
    """Whether three quarters of the compiled times are longer than three quarters of eager's.

    They ran in different processes, at times when the machine may have been busier.
    """
    if any(s.count < _FEWEST or s.is_noisy for s in (*compiled, *eager)):
        return False
    low, high = sum(s.quartiles[0] for s in compiled), sum(s.quartiles[1] for s in eager)
    medians = sum(s.median for s in compiled), sum(s.median for s in eager)
    return low > high and medians[0] > _CLEARLY * medians[1]


def regions_of(
    kernels: Sequence[KernelProfile], times: Iterable[EagerTimes]
) -> tuple[ComparedRegion, ...]:
    """Regions of forward graphs, those that lose most time against eager first."""
    found: list[ComparedRegion] = []
    for eager in times:
        rows = [
            row
            for row in kernels
            if row.compile == eager.compile and row.phase != "backward" and row.has_recorded_sizes
        ]
        for group in _groups(rows):
            names = list(dict.fromkeys(name for row in group for name in row.captured))
            if not names or not all(name in eager.operations for name in names):
                continue
            found.append(
                ComparedRegion(
                    group[0].graph,
                    tuple(row.kernel for row in group),
                    tuple(names),
                    tuple(dict.fromkeys(place for row in group for place in row.places)),
                    tuple(row.seconds for row in group),
                    tuple(eager.operations[name] for name in names),
                )
            )
    return tuple(sorted(found, key=lambda region: region.eager - region.compiled))


def _groups(rows: Sequence[KernelProfile]) -> list[list[KernelProfile]]:
    """Kernels that share an operation of the captured graph, directly or through others."""
    groups: list[tuple[set[str], list[KernelProfile]]] = []
    for row in rows:
        names, members_ = set(row.captured), [row]
        apart = []
        for known, others in groups:
            if known & names:
                names |= known
                members_ = [*others, *members_]
            else:
                apart.append((known, others))
        groups = [*apart, (names, members_)]
    return [members_ for _, members_ in groups]


# --- Runs the program with its kernels timed, and profiles what was measured ----------------------

Say = Callable[[str], None]

# Cached graphs have no IR to compute floors from.
_NO_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


@dataclass(frozen=True)
class ProfiledRun:
    """A profile, and the same graphs in eager."""

    profile: Profile
    eager: tuple[EagerTimes, ...] = ()


def run_profiled(command: Sequence[str], folder: Path, *, stdout: int | None = None) -> Ending:
    """Run the program as `run --fresh` does, with its calls and kernels timed."""
    variables = {**_NO_CACHES, **QUIET, **Orders(records=True).environment("kernel-times")}
    return run_recorded(command, folder, fresh=True, variables=variables, stdout=stdout)


def profile_of(folder: Path, *, measure_anew: bool, with_eager: bool, say: Say) -> ProfiledRun:
    """The profile of a run; measures the machine if its limits are not known yet."""
    calls = read_times(folder / FOLDER)
    kernels = read_kernel_times(folder / FOLDER)
    notes: list[str] = []
    limits = _Limits(calls, measure_anew, say, notes)
    recording = load(folder)
    profile = build_profile(recording, calls, kernels, limits.of)
    eager: tuple[EagerTimes, ...] = ()
    if with_eager and profile.graphs:
        say("timing the same graphs in eager")
        eager = measure_eager(recording, limits.threads, notes)
    return ProfiledRun(replace(profile, notes=(*profile.notes, *notes)), eager)


class _Limits:
    """The limits of this machine's devices, with the program's number of threads."""

    def __init__(
        self, calls: Sequence[ProcessTimes], anew: bool, say: Say, notes: list[str]
    ) -> None:
        self.threads = max((process.threads for process in calls), default=0)
        self._torch = next((process.torch for process in calls), "")
        self._anew, self._say, self._notes = anew, say, notes

    def of(self, device: str) -> MachineLimits | None:
        """The limits of a device; None if they cannot be measured, with a note."""
        if self._anew or not is_measured(device, self.threads, self._torch):
            self._say(f"measuring what this machine can do ({device}), once")
        try:
            found, path = limits_of(device, self.threads, self._torch, FUNCTIONS, anew=self._anew)
        except ToolFailure as failure:
            self._notes.append(str(failure))
            return None
        if path is None:
            self._notes.append("The limits of the machine cannot be kept: its folder is read-only.")
        return found
