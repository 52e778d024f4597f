"""Autotuning results: the winner of each operation, and whether tuning pays off."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.model.entities import Autotune, Compile, InductorGraph, Recording
from inductoscope.model.fx import read_graph
from inductoscope.model.join import final_graph
from inductoscope.profiling.kernel_profile import KernelProfile, Profile
from inductoscope.profiling.orders import overruling
from inductoscope.profiling.statistics import Sample
from inductoscope.profiling.turns import SettingTrials, Variant
from inductoscope.torch_facts import stages


@dataclass(frozen=True)
class TunedOperation:
    """One autotuning search, and the kernels in the program that its winner became."""

    graph: str
    compile: str
    tuned: Autotune
    # The user's line; empty if several searches of the same operation cannot be distinguished.
    source: str = ""
    # The winner in the program; empty if it was not timed there.
    in_program: Sample = field(default_factory=lambda: Sample(()))
    calls: int = 0

    @property
    def spread(self) -> float | None:
        timed = self.tuned.timed
        if len(timed) < 2 or not timed[0].milliseconds:
            return None
        return (timed[-1].milliseconds or 0.0) / timed[0].milliseconds

    @property
    def regret(self) -> float | None:
        chosen = self.tuned.chosen
        if chosen is None or not chosen.milliseconds or not self.in_program.count:
            return None
        return self.in_program.median * 1e3 / chosen.milliseconds

    @property
    def is_slower_than_library(self) -> bool:
        """Whether the winner takes longer in the program than the library took in the search."""
        library, chosen = self.tuned.library, self.tuned.chosen
        if library is None or chosen is None or not self.in_program.count or library is chosen:
            return False
        low, _ = self.in_program.quartiles
        return low * 1e3 > (library.milliseconds or 0.0)


# The same program with the library's kernel wherever there was a choice.
WITHOUT_TUNING = Variant(
    "without autotuning",
    code=overruling(
        {"max_autotune": False, "max_autotune_gemm": False, "max_autotune_pointwise": False}
    ),
)


@dataclass(frozen=True)
class TuningResult:
    """All searches of a run, and the benefit of the chosen kernels in the program."""

    operations: tuple[TunedOperation, ...]
    # Seconds in which choices were compiled and timed.
    seconds: float
    # Graphs that were compiled, with or without a choice in them.
    graphs: int = 0
    # The program with and without tuning; None if there was no choice, or the program fails.
    trials: SettingTrials | None = None

    @property
    def were_made(self) -> bool:
        """Whether any search had more than one choice."""
        return any(len(each.tuned.timed) > 1 for each in self.operations)

    @property
    def gain(self) -> float | None:
        """Seconds that tuning saves per compiled call; None if no difference can be shown."""
        without = self.trials.trials[0] if self.trials is not None else None
        if self.trials is None or without is None or without.comparison is None:
            return None
        if not without.comparison.differs:
            return None
        return without.seconds.median - self.trials.base.seconds.median

    @property
    def pays_after(self) -> int | None:
        """Calls after which the search has paid off; None if never or unknown."""
        if self.gain is None or self.gain <= 0:
            return None
        return math.ceil(self.seconds / self.gain)


def searches_of(recording: Recording, profile: Profile | None = None) -> TuningResult:
    kernels = profile.kernels if profile is not None else ()
    found: list[TunedOperation] = []
    seconds, graphs = 0.0, 0
    for compile_ in recording.compiles:
        for graph in compile_.inductor:
            graphs += 1
            seconds += graph.seconds.get(stages.AUTOTUNE, 0.0)
            found += _of_graph(recording, compile_, graph, kernels)
    return TuningResult(tuple(found), seconds, graphs)


def _of_graph(
    recording: Recording,
    compile_: Compile,
    graph: InductorGraph,
    kernels: Sequence[KernelProfile],
) -> Iterator[TunedOperation]:
    final = read_graph(recording, final_graph(compile_, graph))
    nodes = list(final.calls) if final else []
    for tuned in graph.autotunes:
        same = [other for other in graph.autotunes if other.operation == tuned.operation]
        named = [node for node in nodes if node.operation == tuned.operation]
        found = TunedOperation(graph.key, compile_.id, tuned)
        # A search does not know its node, but searches and nodes are in the same order, and torch
        # does not search again for the same sizes.
        if len(same) == len(named):
            node = next(node for node, one in zip(named, same, strict=True) if one is tuned)
            found = replace(found, source=str(node.place or ""))
            rows = [row for row in kernels if node.name in row.nodes and row.calls]
            # The kernel that computes the node and no other expensive operation.
            if row := max(rows, key=lambda row: row.seconds.median, default=None):
                found = replace(found, in_program=row.seconds, calls=row.calls)
        yield found
