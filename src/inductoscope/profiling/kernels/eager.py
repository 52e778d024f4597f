"""The same graphs in eager, and where compiled code is slower than that.

Operations of the program and kernels are many to many: a kernel computes several operations, and an
operation may become several kernels. A region is the least set of both that belong together, so
that the time of its kernels and the time of its operations are of the same work.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.model.entities import Recording
from inductoscope.processes.limited import ChildLimits, ChildProgram, run_child
from inductoscope.profiling.kernels.profile import GraphProfile, KernelProfile
from inductoscope.profiling.statistics import Sample
from inductoscope.recording.values import members
from inductoscope.targets.recompile.work_list import captured_graphs

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
    with tempfile.TemporaryDirectory(prefix="inductoscope-eager-") as folder:
        path = Path(folder) / "order.json"
        path.write_text(json.dumps([asdict(order) for order in orders]), "utf-8")
        program = ChildProgram(
            Path(__file__).with_name("eager_child.py"), (str(path), str(threads))
        )
        limits = ChildLimits(_SECONDS, memory_gib=1024.0)
        ended = run_child(program, limits, Path(folder), lambda event: None)
    for event in ended.events:
        if event.get("event") == "eager":
            found.append(_times(event))
        elif event.get("event") == "left-out":
            notes.append(f"{event.get('compile')} was not timed in eager: {event.get('why')}")
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
