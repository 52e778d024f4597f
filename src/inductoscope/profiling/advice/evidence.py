"""What is known of a program before a trial: a recording, and its profile if it has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from inductoscope.analysis.rules import SLOWNESS, diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.profiling.kernels.profile import GraphProfile, KernelProfile, Profile
from inductoscope.profiling.timings import FUNCTION

# What makes compiles slow, not the code that comes of them.
_OF_COMPILES = ("compile_threads",)


@dataclass(frozen=True)
class RecordedEvidence:
    """A recorded run of the program; its kernels were timed if there is a profile."""

    recording: Recording
    profile: Profile | None = None

    @cached_property
    def findings(self) -> Sequence[Finding]:
        """What may make it slow."""
        wanted = (*SLOWNESS, *_OF_COMPILES)
        return [finding for finding in diagnose(self.recording) if finding.rule in wanted]

    def about(self, *rules: str) -> Iterator[Finding]:
        """The findings of some rules."""
        return (finding for finding in self.findings if finding.rule in rules)

    @property
    def kernels(self) -> Sequence[KernelProfile]:
        """The kernels that were timed."""
        return self.profile.kernels if self.profile is not None else ()

    @property
    def graphs(self) -> Sequence[GraphProfile]:
        """The graphs that were timed."""
        return self.profile.graphs if self.profile is not None else ()

    @property
    def timed_seconds(self) -> float:
        """All calls of graphs that were timed kernel by kernel: some of those of a run."""
        return sum(graph.seconds.median * graph.calls for graph in self.graphs)

    def left_without(self, seconds: float) -> float | None:
        """The share of those calls that is left without so many seconds of them."""
        whole = self.timed_seconds
        return max(0.0, 1 - seconds / whole) if whole > 0 else None

    def calls_of(self, place: str) -> int:
        """How often the program calls a compiled function after its warm-up; by its first line."""
        functions = self.profile.functions if self.profile is not None else ()
        return sum(f.count for f in functions if f.kind == FUNCTION and f.place == place)
