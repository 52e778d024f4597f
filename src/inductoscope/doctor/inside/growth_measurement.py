"""Compiles the program's graph several times over, in forks, to see how its compile time grows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from inductoscope.doctor.failure import Failure
from inductoscope.doctor.handover import Found, say
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.search.candidate import Candidate, has_transforms
from inductoscope.doctor.search.compile_costs import measure, plain_candidate, warm_up
from inductoscope.doctor.search.compiler_imports import import_compiler
from inductoscope.doctor.search.forks import Forks, can_fork
from inductoscope.doctor.search.growing_graphs import repeated
from inductoscope.profiling.compile_time.compile_cost import CompileCost
from inductoscope.profiling.compile_time.running import MeasuredGrowth

# A size that takes longer is the last one.
_SECONDS = 240.0


class GrowthMeasurement:
    """One graph at several sizes."""

    def __init__(
        self,
        candidate: Candidate,
        failure: Failure,
        found: Found,
        place: Path,
        instructions: Instructions,
    ) -> None:
        self._whole = replace(candidate, earlier=None)
        self._found, self._place = found, place
        self._most = instructions.grow
        self._forks = Forks(workers=1, seconds=_SECONDS, uses_gpu=bool(candidate.device))

    def run(self) -> None:
        """Compile all sizes, the smallest first."""
        self._found.is_complete = True
        result = MeasuredGrowth(self._found.compile, "")
        if self._found.backend or not can_fork():
            why = "another backend compiles it" if self._found.backend else "it uses a GPU"
            self._found.growth = replace(result, error=why)
            return
        if has_transforms(self._whole):
            self._found.growth = replace(result, error="it enters transforms such as vmap")
            return
        import_compiler()
        warm_up(self._whole)
        least = measure(plain_candidate(1, self._whole), self._forks, seconds=_SECONDS)
        costs: list[CompileCost] = []
        for times in sizes_up_to(self._most):
            copies = repeated(self._whole, times)
            nodes = copies.candidate.size
            say(self._place, f"compiling {nodes} nodes: {times} times the graph")
            measured = measure(copies.candidate, self._forks, seconds=_SECONDS)
            result = replace(result, joined=copies.joined)
            if measured.error:
                said = f"{times} copies could not be compiled: {measured.failed}"
                result = replace(result, error=said)
                break
            costs.append(measured.cost)
            if measured.cost.ended_in:
                break
        self._found.growth = replace(result, costs=tuple(costs), least=least.cost)
        self._found.candidates_tried = self._forks.count


def sizes_up_to(most: int) -> list[int]:
    """How often the graph is repeated: enough sizes for an interval."""
    wanted = (1, 2, round(most / 4), round(most / 2), round(most * 0.75), most)
    return sorted({size for size in wanted if 1 <= size <= most})
