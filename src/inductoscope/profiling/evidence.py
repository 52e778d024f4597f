"""Evidence about a slow program before a trial: a recording, and its profile if it has one.

Besides the work of its kernels a program pays for guards, graph breaks, gaps and fallbacks, each of
which is measured in the profiled run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from inductoscope.analysis.rules import SLOWNESS, diagnose
from inductoscope.analysis.rules.dynamo import broken_lines
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.profiling.kernel_profile import NO_PROFILE, Profile
from inductoscope.profiling.timings import FUNCTION, gaps_text
from inductoscope.wording import count_of

# Rules about slow compiles, not about slow code.
_OF_COMPILES = ("compile_threads",)


@dataclass(frozen=True)
class RecordedEvidence:
    """A recorded run of the program; its kernels were timed if there is a profile."""

    recording: Recording
    profile: Profile = NO_PROFILE

    @cached_property
    def findings(self) -> Sequence[Finding]:
        wanted = (*SLOWNESS, *_OF_COMPILES)
        return [finding for finding in diagnose(self.recording) if finding.rule in wanted]

    def about(self, *rules: str) -> Iterator[Finding]:
        return (finding for finding in self.findings if finding.rule in rules)

    @property
    def timed_seconds(self) -> float:
        return sum(graph.times.seconds.median * graph.calls for graph in self.profile.graphs)

    def left_without(self, seconds: float) -> float | None:
        """Return the share of the timed calls that remains without `seconds` of them."""
        whole = self.timed_seconds
        return max(0.0, 1 - seconds / whole) if whole > 0 else None

    def calls_of(self, place: str) -> int:
        return sum(
            f.count for f in self.profile.functions if f.kind == FUNCTION and f.place == place
        )


# --- costs outside of kernels ---------------------------------------------------------------------

# Costs below this share of the calls are left out.
_LEAST_SHARE = 0.01
# A fallback is normal for attention and similar operations; it is named from this share on.
_MUCH = 0.2


@dataclass(frozen=True)
class Cost:
    """A cost in seconds per run: its cause, its place, and how it was measured."""

    seconds: float
    what: str
    source: str = ""
    how: str = ""
    # The share of all compiled calls.
    share: float = 0.0


def costs_of(evidence: RecordedEvidence) -> tuple[Cost, ...]:
    whole = sum(calls.seconds.median * calls.count for calls in evidence.profile.functions)
    if whole <= 0:
        return ()
    kept = [
        replace(cost, share=cost.seconds / whole)
        for costs in (_guards, _breaks, _gaps, _fallbacks)
        for cost in costs(evidence)
        if cost.seconds >= _LEAST_SHARE * whole
    ]
    return tuple(sorted(kept, key=lambda cost: -cost.seconds))


def _guards(evidence: RecordedEvidence) -> Iterator[Cost]:
    by_place: dict[str, list[Compile]] = {}
    for compile_ in evidence.recording.compiles:
        if compile_.guard_microseconds is not None:
            by_place.setdefault(compile_.place, []).append(compile_)
    for place, compiles in by_place.items():
        slowest = max(compiles, key=lambda each: each.guard_microseconds or 0.0)
        took, calls = slowest.guard_microseconds or 0.0, evidence.calls_of(place)
        most = ", ".join(f"{source} {part:.0f} µs" for source, part in slowest.costly_guards[:3])
        of = f" ({most})" if most else ""
        yield Cost(
            took * 1e-6 * calls,
            f"{count_of(slowest.guard_count, 'guard')} of {slowest.function}, "
            f"{took:.0f} µs per call{of}",
            place,
            f"timed when they were built; {count_of(calls, 'call')}",
        )


def _breaks(evidence: RecordedEvidence) -> Iterator[Cost]:
    """Yield the time of calls outside of their graphs, for functions with graph breaks."""
    lines = broken_lines(evidence.recording)
    for calls in (
        each for each in evidence.profile.functions if each.kind == FUNCTION and each.count
    ):
        own = _frames_of(calls.place, evidence.recording.compiles)
        broken = [line for line in lines if own & set(line.compiles)]
        graphs = [graph for graph in evidence.profile.graphs if graph.compile in own]
        if not broken or not graphs:
            continue
        parts = sum(graph.calls for graph in graphs) / calls.count
        inside = sum(graph.times.seconds.median * graph.calls for graph in graphs)
        more = f" and {count_of(len(broken) - 1, 'other line')}" if len(broken) > 1 else ""
        yield Cost(
            max(0.0, calls.seconds.median * calls.count - inside),
            f"{calls.name} outside of its graphs; it breaks at {broken[0].code or 'a line'}{more}, "
            f"and runs {parts:.1f} graphs per call",
            broken[0].source,
            f"{count_of(calls.count, 'call')}, without the time of their graphs",
        )


def _frames_of(place: str, compiles: Iterable[Compile]) -> set[str]:
    """Return the compiles of the function at this line, and of its resume functions."""
    first = [compile_ for compile_ in compiles if compile_.place == place]
    names = {(compile_.file, compile_.function) for compile_ in first}
    rest = [c for c in compiles if (c.file, c.resumed.partition(" at ")[0]) in names]
    return {compile_.id for compile_ in (*first, *rest)}


def _gaps(evidence: RecordedEvidence) -> Iterator[Cost]:
    for graph in evidence.profile.graphs:
        times, calls = graph.times, graph.calls
        rows = [row for row in evidence.profile.kernels if row.of is graph and row.calls]
        if times.idle < _MUCH or not calls or not rows:
            continue
        usual = f"{sorted(row.seconds.median for row in rows)[len(rows) // 2] * 1e6:.3g} µs"
        kernels = f"most of its {len(rows)} kernels take {usual} or less"
        where = "between its kernels"
        if len(rows) == 1:
            kernels, where = f"its kernel takes {usual}", "besides its kernel"
        gaps = gaps_text(times.device, times.how)
        yield Cost(
            times.between.median * calls,
            f"{graph.function or graph.graph} {where}: {gaps} take {times.idle:.0%} of a call of "
            f"its graph; {kernels}",
            graph.place,
            f"{count_of(calls, 'call')} timed kernel by kernel",
        )


def _fallbacks(evidence: RecordedEvidence) -> Iterator[Cost]:
    """Yield operations that fall back to eager's kernels, which cannot be fused."""
    left = {
        (graph.key, node.node)
        for compile_ in evidence.recording.compiles
        for graph in compile_.inductor
        for node in graph.lowered
        if node.fallback
    }
    whole = sum(row.total for row in evidence.profile.kernels)
    for row in evidence.profile.kernels:
        is_left = any((row.of.graph, node) in left for node in row.nodes)
        if is_left and row.calls and row.total >= _MUCH * whole:
            yield Cost(
                row.total,
                f"{', '.join(row.operations)} has no lowering: eager's kernel takes "
                f"{row.total / whole:.0%} of the kernels' time, and nothing is fused with it",
                row.places[0] if row.places else "",
                f"{row.kernel}, {count_of(row.calls, 'call')} timed",
            )
