"""The kernel profile: measurements, joined with the recording and the machine's limits.

Kernels are sorted by the time that they lost against their floor, over all calls. The same graphs
are also timed in eager, to find where compiled code is slower.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from inductoscope.launch.environment import PartName
from inductoscope.launch.program import run_recorded
from inductoscope.model.entities import Ending, Recording
from inductoscope.model.fold import load
from inductoscope.model.fx import FxNode
from inductoscope.model.join import captured_graph, inputs_of
from inductoscope.model.wrapper_lines import kernels_by_call, kernels_by_line
from inductoscope.processes.children import ChildCall, ChildLimits, run_child
from inductoscope.profiling.kernel_work import (
    FUNCTIONS,
    GraphWork,
    KernelWork,
    floor_of,
    recorded_graphs,
)
from inductoscope.profiling.machine import TOLERANCE, Floor, MachineLimits, known_limits
from inductoscope.profiling.orders import Orders
from inductoscope.profiling.statistics import Sample
from inductoscope.profiling.timings import (
    FOLDER,
    CallTimes,
    GraphTimes,
    KernelTimes,
    ProcessTimes,
    Site,
    all_calls,
    in_seconds,
    read_measured,
)
from inductoscope.recording.events import Kernel
from inductoscope.targets.work_list import captured_graphs
from inductoscope.torch_facts.stages import AOT_INDUCTOR

Say = Callable[[str], None]
# Returns the limits of a device with a number of threads; None if they cannot be measured.
LimitsOf = Callable[[str], MachineLimits | None]

# Graphs from a cache have no recorded IR to compute floors from.
_NO_CACHES = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}


@dataclass(frozen=True)
class GraphProfile:
    """One compiled graph with one set of sizes."""

    times: GraphTimes
    # The graph's key in the recording; the file of its wrapper if it was not recorded.
    graph: str
    function: str = ""
    place: str = ""
    phase: str = ""
    compile: str = ""
    # Whether the sizes are those that the graph was compiled with.
    has_recorded_sizes: bool = True
    # The call sites of kernels, with their names and lines in the recording.
    sites: tuple[Site, ...] = ()

    @property
    def calls(self) -> int:
        """The number of calls after the first; 0 if the first, then the sample, is the only one."""
        return self.times.count


@dataclass(frozen=True)
class KernelProfile:
    """One call of a kernel in a wrapper, with one set of sizes."""

    of: GraphProfile
    kernel: str
    line: int
    calls: int
    seconds: Sample
    language: str = ""
    work: KernelWork = field(default_factory=KernelWork)
    floor: Floor | None = None
    operations: tuple[str, ...] = ()
    # FX nodes of the graph, and the user's lines that they come from.
    nodes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    # The operations of the graph that Dynamo captured.
    captured: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        return self.of.times.device

    @property
    def total(self) -> float:
        return self.seconds.median * max(self.calls, 1)

    @property
    def lost(self) -> float:
        """Seconds beyond the floor in all calls; the total if there is no floor."""
        least = self.floor.seconds * max(self.calls, 1) if self.floor else 0.0
        return max(0.0, self.total - least)

    @property
    def share(self) -> float | None:
        """The floor relative to the time: 1 is as fast as the machine allows."""
        if self.floor is None or self.seconds.median <= 0:
            return None
        return self.floor.seconds / self.seconds.median

    @property
    def beats_limit(self) -> bool:
        return self.share is not None and self.share > TOLERANCE


@dataclass(frozen=True)
class Profile:
    functions: tuple[CallTimes, ...]
    graphs: tuple[GraphProfile, ...]
    kernels: tuple[KernelProfile, ...]
    machines: tuple[MachineLimits, ...] = ()
    notes: tuple[str, ...] = ()
    # Processes that called compiled graphs, such as the ranks of a distributed program.
    processes: int = 1
    # Whether Inductor compiled any graph; functions that Dynamo skips run in eager.
    has_graphs: bool = True
    # The captured graphs in eager, if they were timed.
    eager: tuple[EagerTimes, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.functions and not self.graphs


NO_PROFILE = Profile((), (), ())


def build_profile(
    recording: Recording,
    calls: Sequence[ProcessTimes],
    kernels: Sequence[KernelTimes],
    limits_of: LimitsOf,
) -> Profile:
    loaded = recorded_graphs(recording, _LoadedGraph)
    graphs: list[GraphProfile] = []
    rows: list[KernelProfile] = []
    machines: dict[str, MachineLimits | None] = {}
    for times in (times for process in kernels for times in process.graphs):
        known = loaded.get(times.path) or _package_of(times, loaded.values())
        if times.device not in machines:
            machines[times.device] = limits_of(times.device)
        graph = GraphProfile(times, times.path, sites=times.sites)
        graphs.append(known.profile(times) if known else graph)
        rows += _kernels(graphs[-1], known, machines[times.device])
    return Profile(
        all_calls(calls),
        tuple(graphs),
        tuple(sorted(rows, key=lambda row: -row.lost)),
        tuple(machine for machine in machines.values() if machine is not None),
        tuple(dict.fromkeys(note for process in kernels for note in process.notes)),
        max(1, sum(bool(process.graphs) for process in kernels)),
        any(compile_.inductor for compile_ in recording.compiles),
    )


class _LoadedGraph(GraphWork):
    @cached_property
    def _by_line(self) -> Mapping[int, Kernel]:
        return kernels_by_line(self.recording, self.graph)

    @cached_property
    def _by_call(self) -> Mapping[tuple[str, int], tuple[int, Kernel]]:
        return kernels_by_call(self.recording, self.graph)

    @cached_property
    def nodes(self) -> Mapping[int, list[FxNode]]:
        """The FX nodes that a kernel computes, by its identity."""
        join, found = self.join, dict[int, list[FxNode]]()
        for node in join.final.calls if join.final else ():
            for kernel in join.kernels(join.leaves(node)):
                found.setdefault(id(kernel), []).append(node)
        return found

    @cached_property
    def _unclaimed(self) -> Mapping[str, list[str]]:
        """The captured operations that no kernel is known to compute, by those that come with them.

        When torch replaces several nodes by one, such as a product and a sum by addmm, the new node
        has the origin of the last one only. Its other operations come with those that use them; if
        only the output does, with those that they use.
        """
        graph = captured_graph(self.recording, self.compile)
        calls = {node.name: inputs_of(node) for node in graph.calls} if graph else {}
        claimed = {n for nodes in self.nodes.values() for node in nodes for n in node.origins}
        used_by_a_kernel, found = set(claimed), defaultdict[str, list[str]](list)
        for name, inputs in reversed(calls.items()):
            for given in calls.keys() & inputs:
                if name not in used_by_a_kernel:
                    found[given].append(name)
                elif given not in claimed:
                    used_by_a_kernel.add(given)
                    found[name].append(given)
        return found

    def captured_by(self, nodes: Sequence[FxNode]) -> tuple[str, ...]:
        """Return the captured operations that these nodes may compute; none if one is unknown."""
        if not all(node.origins for node in nodes):
            return ()
        names = list(dict.fromkeys(name for node in nodes for name in node.origins))
        for name in names:
            names += [more for more in self._unclaimed.get(name, ()) if more not in names]
        return tuple(names)

    @property
    def has_unknown_sizes(self) -> bool:
        """Whether the graph has dynamic sizes that its C++ wrapper does not report per call."""
        return bool(self._by_call) and bool(self.hints)

    def profile(self, times: GraphTimes) -> GraphProfile:
        recorded = all(self.hints.get(name) == size for name, size in times.sizes.items())
        return GraphProfile(
            times,
            self.graph.key,
            self.compile.function,
            self.compile.place,
            self.graph.phase,
            self.compile.id,
            recorded and not self.has_unknown_sizes,
            tuple(self._with_line(site) for site in times.sites),
        )

    def _with_line(self, site: Site) -> Site:
        line, kernel = self.place_of(site) or (site.line, None)
        return Site(kernel.name if kernel else site.kernel, line, site.occurrence)

    def place_of(self, site: Site) -> tuple[int, Kernel] | None:
        """Return the line of the wrapper that calls a kernel, and that kernel."""
        if not site.line and self._by_call:
            return self._by_call.get((site.kernel, site.occurrence))
        found = self._by_line.get(site.line)
        if found is None or found.name != site.kernel:
            named = [kernel for kernel in self.graph.kernels if kernel.name == site.kernel]
            found = named[0] if len(named) == 1 else None
        return None if found is None else (site.line, found)

    def work_of(self, kernel: Kernel, times: GraphTimes) -> KernelWork:
        if self.has_unknown_sizes:
            return KernelWork(missing="the sizes of its calls are not known in a C++ wrapper")
        # torch's TF32 settings do not apply to a CPU.
        return self.of(kernel, times.sizes, () if times.device == "cpu" else times.in_tf32)


def _package_of(times: GraphTimes, graphs: Iterable[_LoadedGraph]) -> _LoadedGraph | None:
    """Return the graph that a package was compiled from: the only one with the same kernels."""
    if not times.sites or any(site.line for site in times.sites):
        return None
    packaged = [graph for graph in graphs if graph.compile.flow == AOT_INDUCTOR]
    found = [graph for graph in packaged if all(graph.place_of(site) for site in times.sites)]
    return found[0] if len(found) == 1 else None


def _kernels(
    graph: GraphProfile, known: _LoadedGraph | None, machine: MachineLimits | None
) -> Iterator[KernelProfile]:
    times = graph.times
    for site, shown, seconds in zip(times.sites, graph.sites, times.seconds_of_sites, strict=True):
        if not seconds.count:
            continue
        calls = round(times.count * seconds.count / len(times.kept)) if times.kept else 0
        row = KernelProfile(graph, shown.kernel, shown.line, calls, seconds)
        place = known.place_of(site) if known else None
        if known is None or place is None:
            yield row
            continue
        kernel = place[1]
        nodes, work = known.nodes.get(id(kernel), []), known.work_of(kernel, times)
        yield replace(
            row,
            language=kernel.language,
            work=work,
            floor=floor_of(work, machine) if machine else None,
            operations=tuple(dict.fromkeys(node.operation for node in nodes)),
            nodes=tuple(node.name for node in nodes),
            places=tuple(dict.fromkeys(f"{n.place.file}:{n.place.line}" for n in nodes if n.place)),
            captured=known.captured_by(nodes),
        )


# --- the same graphs in eager ---------------------------------------------------------------------

_EAGER_SECONDS = 120.0
# Eager and compiled ran in different processes, so smaller differences are not significant.
_CLEARLY = 1.1
# Fewer calls than this have no meaningful quartiles.
_FEWEST = 5


@dataclass(frozen=True)
class EagerTimes:
    compile: str
    calls: Sample
    backward: Sample
    # Times by operation of the captured graph.
    operations: Mapping[str, Sample] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparedRegion:
    """Kernels and operations that do the same work.

    The relation is many-to-many: a kernel computes several operations, and an operation may become
    several kernels. A region is a connected component of this relation.
    """

    graph: str
    kernels: tuple[str, ...]
    operations: tuple[str, ...]
    places: tuple[str, ...]
    # The sum of the medians of its kernels, and of its operations in eager, in seconds.
    compiled: float
    eager: float
    # Whether eager is clearly faster.
    slower_than_eager: bool


def _measure_eager(recording: Recording, threads: int, notes: list[str]) -> tuple[EagerTimes, ...]:
    """Time every captured graph in eager in a child process; add notes on failures."""
    orders = [asdict(order) for order in captured_graphs(recording, exported=True)]
    if not orders:
        return ()
    call = ChildCall(
        "inductoscope.inside.profiling.eager_child:time_eager",
        {"graphs": orders, "threads": threads},
    )
    ended = run_child(call, ChildLimits(_EAGER_SECONDS, memory_gib=1024.0))
    for event in ended.events:
        if event["event"] == "left-out":
            notes.append(f"{event['compile']} was not timed in eager: {event['why']}")
    if ended.exit_code is None:
        notes.append("Eager took too long and was not timed to its end.")
    return tuple(
        EagerTimes(
            event["compile"],
            in_seconds(event["calls"]),
            in_seconds(event["backward"]),
            {name: in_seconds(times) for name, times in event["nodes"].items()},
        )
        for event in ended.events
        if event["event"] == "eager"
    )


def eager_of(graph: GraphProfile, times: Iterable[EagerTimes]) -> Sample | None:
    """Return the time of a graph in eager; None if it is unknown.

    A graph with dynamic sizes is timed with the sizes that it was compiled with.
    """
    found = next((t for t in times if t.compile == graph.compile), None)
    if found is None or not graph.has_recorded_sizes:
        return None
    sample = found.backward if graph.phase == "backward" else found.calls
    return sample if sample.count else None


def is_slower_than_eager(graph: GraphProfile, eager: Sample) -> bool:
    return graph.calls > 0 and _is_clearly_slower([graph.times.seconds], [eager])


def _is_clearly_slower(compiled: Sequence[Sample], eager: Sequence[Sample]) -> bool:
    """Check whether three quarters of the compiled times are longer than three quarters of eager's.

    A strict test, because they ran in different processes, under possibly different load.
    """
    if any(s.count < _FEWEST or s.is_noisy for s in (*compiled, *eager)):
        return False
    low, high = sum(s.quartiles[0] for s in compiled), sum(s.quartiles[1] for s in eager)
    medians = sum(s.median for s in compiled), sum(s.median for s in eager)
    return low > high and medians[0] > _CLEARLY * medians[1]


def regions_of(
    kernels: Sequence[KernelProfile], times: Iterable[EagerTimes]
) -> list[ComparedRegion]:
    """Return the regions of forward graphs; those that lose most time against eager first."""
    found: list[ComparedRegion] = []
    for eager in times:
        for group in _groups([row for row in kernels if _is_timed_in(row.of, eager)]):
            names = tuple(dict.fromkeys(name for row in group for name in row.captured))
            if names and all(name in eager.operations for name in names):
                ours = [row.seconds for row in group]
                theirs = [eager.operations[name] for name in names]
                found.append(
                    ComparedRegion(
                        group[0].of.graph,
                        tuple(row.kernel for row in group),
                        names,
                        tuple(dict.fromkeys(place for row in group for place in row.places)),
                        sum(sample.median for sample in ours),
                        sum(sample.median for sample in theirs),
                        _is_clearly_slower(ours, theirs),
                    )
                )
    return sorted(found, key=lambda region: region.eager - region.compiled)


def _is_timed_in(graph: GraphProfile, eager: EagerTimes) -> bool:
    is_forward = graph.compile == eager.compile and graph.phase != "backward"
    return is_forward and graph.has_recorded_sizes


def _groups(rows: Sequence[KernelProfile]) -> list[list[KernelProfile]]:
    """Group kernels that share an operation of the captured graph, directly or transitively."""
    groups: list[tuple[set[str], list[KernelProfile]]] = []
    for row in rows:
        names = set(row.captured)
        alike = [group for group in groups if group[0] & names]
        together = [one for _, others in alike for one in others]
        apart = [group for group in groups if not group[0] & names]
        groups = [*apart, (names.union(*(known for known, _ in alike)), [*together, row])]
    return [together for _, together in groups]


# --- running the program --------------------------------------------------------------------------


def run_profiled(
    command: Sequence[str], folder: Path, profiler: PartName, *, stdout: int | None
) -> Ending:
    """Run the program as `run --fresh` does, with a profiler in it."""
    variables = {**_NO_CACHES, **Orders(records=True).environment(profiler)}
    return run_recorded(command, folder, fresh=True, variables=variables, stdout=stdout)


def profile_of(folder: Path, *, measure_anew: bool, with_eager: bool, say: Say) -> Profile:
    calls = read_measured(ProcessTimes, folder / FOLDER)
    kernels = read_measured(KernelTimes, folder / FOLDER)
    threads = max((process.threads for process in calls), default=0)
    torch = next((process.torch for process in calls), "")
    notes: list[str] = []

    def limits_of(device: str) -> MachineLimits | None:
        limits, note = known_limits(device, threads, torch, FUNCTIONS, anew=measure_anew, say=say)
        notes.extend(filter(None, [note]))
        return limits

    recording = load(folder)
    profile = build_profile(recording, calls, kernels, limits_of)
    if with_eager and profile.graphs:
        say("timing the same graphs in eager")
        profile = replace(profile, eager=_measure_eager(recording, threads, notes))
    return replace(profile, notes=(*profile.notes, *notes))
