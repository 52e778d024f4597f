"""Leads from a slow compile to the stage, the function and the smallest graph.

Runs inside the program's process, which waits meanwhile. Plain graphs are compiled first, then
growing parts of the program's graph; their costs show whether the compile is slow at all.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from inductoscope.doctor.failure import SLOW, Failure, Location
from inductoscope.doctor.finding import (
    SMALLEST_GRAPH,
    WHOLE_GRAPH,
    FailureFinding,
    GraphWorkarounds,
    Noticed,
    NotShownAgain,
    Reduction,
    ReplacedParts,
    Script,
    SearchProgress,
    SlowStage,
)
from inductoscope.doctor.instructions import Instructions
from inductoscope.errors import ToolFailure
from inductoscope.inside.doctor.investigation import FindingWriter, reduction_to
from inductoscope.inside.repro.failure_script import expected_output, script_text, title_of
from inductoscope.inside.repro.replaced_functions import replaced_functions_text, replaced_parts
from inductoscope.inside.scope import SCOPE, say
from inductoscope.inside.search.candidate import Candidate, has_transforms
from inductoscope.inside.search.compile_costs import (
    TIMES_SMALLEST,
    Measured,
    SlowOracle,
    growing_parts,
    measure,
    measure_plain,
    plain_candidate,
    plain_sizes,
    repeated,
    seconds_to_be_slow,
    warm_up,
)
from inductoscope.inside.search.compiler_imports import import_compiler
from inductoscope.inside.search.forks import Forks, can_fork
from inductoscope.inside.search.location import source_lines
from inductoscope.inside.search.shrink import (
    SHRINK_PASSES,
    Subject,
    apply_passes,
    with_exact_inputs,
)
from inductoscope.inside.workarounds import faster_compiles
from inductoscope.profiling.compile_growth import (
    TIMES_PLAIN,
    CompileCost,
    Explosion,
    MeasuredGrowth,
    PartCost,
    against_plain,
    certain_explosion,
    is_out_of_proportion,
    quickest_of,
)
from inductoscope.recording.codec import encode
from inductoscope.recording.events import GrowthMeasured
from inductoscope.torch_facts import stages

_PLAIN_SECONDS = 120.0
_SHRINK_SECONDS = 60.0
# How often the graph is compiled between plain ones before anything is concluded.
_TURNS = 3
# The number of sizes that shows how compile time grows.
_ENOUGH = 3
# A part that takes this much of its stage is what the stage spends its time on.
_MOST = 0.5


class SlowInvestigation(FindingWriter):
    """The investigation of one slow compile, step by step."""

    def __init__(
        self,
        candidate: Candidate,
        finding: FailureFinding,
        folder: Path,
        instructions: Instructions,
    ) -> None:
        super().__init__(finding)
        self._whole = replace(candidate, earlier=None)
        self._suspected = finding.failure
        self._with_workaround = instructions.with_workaround
        # The number of nodes that the whole graph is lowered to, which plain graphs have to match.
        self._lowered = max(instructions.lowered, self._whole.size)
        self._forks = Forks(workers=1, uses_gpu=bool(candidate.device))
        self._plain: list[CompileCost] = []
        # The smallest part of the graph that is out of proportion, so far.
        self._part = self._smallest = self._whole
        self._smallest_lowered = 0
        self._limit = _PLAIN_SECONDS

    def run(self) -> None:
        size = self._whole.size
        self._claim(Reduction(size, size, sources=tuple(source_lines(self._whole))), WHOLE_GRAPH)
        if not self._finding.fact(Noticed).backend and can_fork():
            self._search()
        self._claim(SearchProgress(self._forks.count, is_complete=True))

    def _search(self) -> None:
        import_compiler()
        warm_up(self._whole)
        measured = self._measure_growth()
        if measured is None:
            return
        self._shrink()
        self._locate(measured)
        self._write_script()
        if self._with_workaround:
            self._find_workaround()

    # --- steps --------------------------------------------------------------------------------

    def _measure_growth(self) -> Measured | None:
        """Measure growing parts of the graph; None if none is slow compared with plain graphs."""
        nodes = self._whole.size
        if not self._measure_plain(*self._plain_sizes(self._lowered)):
            return None
        stage = self._suspected.stage
        self._limit = 2 * seconds_to_be_slow(self._plain, self._lowered, TIMES_PLAIN, stage)
        until = self._until(stage)
        costs: list[CompileCost] = []
        measured = None
        for part in self._parts():
            say(f"compiling the first {part.size} of {nodes} nodes")
            measured = measure(part, self._forks, seconds=self._limit, until=until)
            if measured.error:
                self._claim(NotShownAgain(measured.failed))
                return None
            costs.append(self._counted(measured.cost))
            self._part = part
            if measured.cost.ended_in or self._is_clear(costs):
                break
        explosion = self._confirmed(costs, until)
        self._claim(SlowStage(explosion, sizes_by="the first nodes of the graph"), WHOLE_GRAPH)
        if explosion is None:
            self._claim(NotShownAgain(_in_proportion(costs, self._plain)))
            return None
        self._claim(Failure(SLOW, said_of(explosion), stage=explosion.stage), WHOLE_GRAPH)
        return measured

    def _measure_plain(self, *sizes: int) -> bool:
        """Compile plain graphs, of which the slowest count; return whether that succeeded."""
        text = " and ".join(map(str, sizes))
        say(f"compiling plain graphs of {text} pointwise nodes to compare")
        again = measure_plain(self._whole, sizes, self._forks, seconds=_PLAIN_SECONDS)
        if again[-1].failed:
            instead = f"a plain graph could not be compiled to compare: {again[-1].failed}"
            self._claim(NotShownAgain(instead))
            return False
        self._plain += [each.cost for each in again]
        return True

    def _counted(self, cost: CompileCost) -> CompileCost:
        """Use the node count of an earlier run, if this one was killed before it counted all."""
        return replace(cost, nodes=max(cost.nodes, self._lowered)) if cost.ended_in else cost

    def _confirmed(self, costs: list[CompileCost], until: str) -> Explosion | None:
        """Return the explosion if it persists over several turns of plain graphs and this one.

        Of the plain graphs the slowest counts, of this one the fastest.
        """
        for _ in range(_TURNS - 1):
            size = self._plain_sizes(costs[-1].nodes)[-1]
            if certain_explosion(costs, self._plain) is None:
                return None
            if not self._measure_plain(size):
                return None
            say(f"compiling the first {self._part.size} nodes once more")
            again = measure(self._part, self._forks, seconds=self._limit, until=until)
            if again.error:
                return None
            costs[-1] = quickest_of(costs[-1], self._counted(again.cost))
        is_measured = self._measure_plain(self._plain_sizes(costs[-1].nodes)[-1])
        return certain_explosion(costs, self._plain) if is_measured else None

    def _plain_sizes(self, nodes: int) -> tuple[int, ...]:
        return plain_sizes(nodes, backward=self._whole.backward)

    def _is_clear(self, costs: list[CompileCost]) -> bool:
        """Check whether larger parts would only take longer."""
        cost = costs[-1]
        found = against_plain(cost, self._plain, cost.slowest_stage)
        return len(costs) >= _ENOUGH and is_out_of_proportion(found)

    def _until(self, stage: str) -> str:
        """Return the stage to stop after; empty if native compilers have to run."""
        is_native = stage in (*stages.NATIVE_COMPILES, stages.WRAPPER, stages.RUNTIME)
        return "" if is_native or self._whole.backward else stages.CODEGEN

    def _parts(self) -> list[Candidate]:
        if has_transforms(self._whole):
            return [self._whole]
        with contextlib.suppress(Exception):  # Without parts, the whole graph is measured.
            return growing_parts(self._whole)
        return [self._whole]

    def _shrink(self) -> None:
        stage = self._finding.failure.stage
        forks = Forks(uses_gpu=bool(self._whole.device))
        forks.seconds = seconds_to_be_slow(self._plain, self._part.size, TIMES_SMALLEST, stage)
        oracle = SlowOracle(forks, stage=stage, plain=self._plain)
        self._smallest = self._part
        # Each group of passes has its own time, so that the result is always made readable.
        for passes in (SHRINK_PASSES[:1], SHRINK_PASSES[1:-1], SHRINK_PASSES[-1:]):
            oracle.deadline = time.monotonic() + _SHRINK_SECONDS / len(passes)
            subject = Subject(self._smallest, self._finding.failure, [])
            for progress in apply_passes(subject, oracle, passes):
                self._smallest = progress.candidate
                if progress.text:
                    say(progress.text)
        self._forks.count += forks.count
        if not all(self._smallest.recipes):
            self._smallest = with_exact_inputs(self._smallest)
        self._claim(reduction_to(self._smallest, self._whole.size), SMALLEST_GRAPH)

    def _locate(self, whole: Measured) -> None:
        """Find the function, the pass and the node that dominate the stage."""
        stage = self._finding.failure.stage
        until = self._until(stage)
        again = measure(
            self._smallest, self._forks, seconds=2 * self._limit, until=until, stage=stage
        )
        hot = max(whole.hot, again.hot, key=lambda path: path.samples * bool(path.functions))
        self._smallest_lowered = self._counted(again.cost).nodes
        cost = whole.cost if whole.hot.functions and not whole.cost.ended_in else again.cost
        slow = replace(
            self._finding.fact(SlowStage),
            smallest=against_plain(again.cost, self._plain, stage),
            functions=hot.functions[:12],
            share=round(hot.share, 3),
            samples=hot.samples,
            passes=cost.passes[:4] if stage in stages.PASSES else (),
            lowered=cost.lowered[:4] if stage == stages.LOWERING else (),
        )
        self._claim(slow, SMALLEST_GRAPH)
        seconds = cost.seconds_of(stage)
        in_passes = stage in stages.PASSES
        location = Location(
            stage=stage,
            function=hot.function,
            pass_name=_largest(cost.passes, seconds) if in_passes else "",
            operation=_operation(cost, seconds) if stage == stages.LOWERING else "",
            text=self._finding.failure.text,
            how="its compile was timed beside plain graphs, and its stacks were sampled",
        )
        self._claim(location, SMALLEST_GRAPH)
        functions = tuple(hot.functions[:12])
        self._claim(replace(self._finding.failure, functions=functions), SMALLEST_GRAPH)
        self._claim(ReplacedParts(tuple(replaced_parts([location.operation]))))

    def _write_script(self) -> None:
        failure, text, why_not = self._finding.failure, "", ""
        try:
            if not all(self._smallest.recipes):
                raise ToolFailure("a script cannot hold an input of this size or type")
            text = script_text(
                self._smallest,
                failure,
                title_of(failure, "", self._finding.reduction.operations),
                own_passes=replaced_functions_text(failure.functions),
                lowered=self._smallest_lowered,
            )
        except ToolFailure as error:
            why_not = str(error)
        self._claim(Script(text, tuple(expected_output(failure)), why_not), SMALLEST_GRAPH)

    def _find_workaround(self) -> None:
        smallest, location = self._finding.fact(SlowStage).smallest, self._finding.location
        if smallest is None:
            return
        say("trying what may make it faster")
        found = faster_compiles(
            self._smallest,
            location,
            self._finding.reduction.operations,
            self._forks,
            until=self._until(location.stage),
            before=smallest.seconds,
            seconds=2 * smallest.plain_seconds,
        )
        self._claim(GraphWorkarounds(tuple(found)), SMALLEST_GRAPH)


def said_of(explosion: Explosion) -> str:
    where = stages.WORDS.get(explosion.stage, explosion.stage)
    more = "more than " if explosion.is_at_least else ""
    return (
        f"{where} takes {more}{explosion.seconds:.1f} s for {explosion.nodes} nodes; the whole "
        f"compile of as many pointwise nodes should take {explosion.plain_seconds:.1f} s"
    )


def _in_proportion(costs: list[CompileCost], plain: list[CompileCost]) -> str:
    largest = max(costs, key=lambda cost: cost.nodes, default=None)
    if largest is None:
        return ""
    found = against_plain(largest, plain, largest.slowest_stage)
    return f"compiled alone, it is not out of proportion for certain: {said_of(found)}"


def _largest(parts: tuple[PartCost, ...], seconds: float) -> str:
    first = max(parts, key=lambda part: part.seconds, default=None)
    return first.name if first is not None and first.seconds > _MOST * seconds else ""


def _operation(cost: CompileCost, seconds: float) -> str:
    spent: dict[str, float] = {}
    for part in cost.lowered:
        name = part.name.partition(" ")[2]
        spent[name] = spent.get(name, 0.0) + part.seconds
    name = max(spent, key=lambda each: spent[each], default="")
    return name if name and spent[name] > _MOST * seconds else ""


# --------------------------------------------------------------------------------------------------
# Compiles the program's graph several times over, in forks, to see how its compile time grows.

# A size that takes longer is the last one.
_SECONDS = 240.0


class GrowthMeasurement:
    def __init__(
        self,
        candidate: Candidate,
        finding: FailureFinding,
        folder: Path,
        instructions: Instructions,
    ) -> None:
        self._whole = replace(candidate, earlier=None)
        self._noticed = finding.fact(Noticed)
        self._most = instructions.grow
        self._forks = Forks(workers=1, seconds=_SECONDS, uses_gpu=bool(candidate.device))

    def run(self) -> None:
        obstacles = {
            "another backend compiles it": self._noticed.backend,
            "it uses a GPU": not can_fork(),
            "it enters transforms such as vmap": has_transforms(self._whole),
        }
        error = next((why for why, is_there in obstacles.items() if is_there), "")
        result = MeasuredGrowth(self._noticed.compile, "", error=error)
        SCOPE.emit(GrowthMeasured(growth=encode(result if error else self._measured(result))))

    def _measured(self, result: MeasuredGrowth) -> MeasuredGrowth:
        import_compiler()
        warm_up(self._whole)
        least = measure(plain_candidate(1, self._whole), self._forks, seconds=_SECONDS)
        costs: list[CompileCost] = []
        for times in sizes_up_to(self._most):
            copies, joined = repeated(self._whole, times)
            say(f"compiling {copies.size} nodes: {times} times the graph")
            measured = measure(copies, self._forks, seconds=_SECONDS)
            result = replace(result, joined=joined)
            if measured.error:
                said = f"{times} copies could not be compiled: {measured.failed}"
                result = replace(result, error=said)
                break
            costs.append(measured.cost)
            if measured.cost.ended_in:
                break
        return replace(result, costs=tuple(costs), least=least.cost)


def sizes_up_to(most: int) -> list[int]:
    wanted = (1, 2, round(most / 4), round(most / 2), round(most * 0.75), most)
    return sorted({size for size in wanted if 1 <= size <= most})
