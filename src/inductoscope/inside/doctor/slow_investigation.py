"""From a compile that takes too long to the stage, the function and the smallest graph.

Runs inside the program's process, which waits meanwhile. First plain graphs are compiled, then
growing parts of the program's graph; what they cost decides whether anything is wrong at all.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from inductoscope.doctor.failure import SLOW, Failure, Location
from inductoscope.doctor.finding import (
    Found,
    SlowCompileFound,
    say,
    write_found,
)
from inductoscope.doctor.instructions import Instructions
from inductoscope.errors import ToolFailure
from inductoscope.inside.repro.failure_script import expected_output, script_text, title_of
from inductoscope.inside.repro.replaced_functions import replaced_functions_text, replaced_parts
from inductoscope.inside.search.candidate import Candidate, has_transforms, name_of
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
from inductoscope.inside.search.shrink import Subject, shrink
from inductoscope.inside.search.shrink_passes import SHRINK_PASSES, with_exact_inputs
from inductoscope.inside.search.wrong_result_location import aten_operations, source_lines
from inductoscope.inside.workarounds import faster_compiles
from inductoscope.profiling.compile_growth import (
    TIMES_PLAIN,
    CompileCost,
    Explosion,
    PartCost,
    against_plain,
    certain_explosion,
    is_out_of_proportion,
    quickest_of,
)
from inductoscope.profiling.compile_times import MeasuredGrowth
from inductoscope.torch_facts import stages

_PLAIN_SECONDS = 120.0
_SHRINK_SECONDS = 60.0
# How often the graph is compiled between plain ones before anything is concluded.
_TURNS = 3
# So many sizes show how compile time grows.
_ENOUGH = 3
# A part that takes this much of its stage is what the stage spends its time on.
_MOST = 0.5


class SlowInvestigation:
    """One slow compile, step by step."""

    def __init__(
        self,
        candidate: Candidate,
        failure: Failure,
        found: Found,
        place: Path,
        instructions: Instructions,
    ) -> None:
        self._whole = replace(candidate, earlier=None)
        self._suspected = failure
        self._found, self._place = found, place
        self._with_workaround = instructions.with_workaround
        # To how many nodes the whole graph is lowered: what plain graphs have to be held against.
        self._lowered = max(instructions.lowered, self._whole.size)
        self._forks = Forks(workers=1, uses_gpu=bool(candidate.device))
        self._plain: list[CompileCost] = []
        # The smallest part of the graph that is out of proportion, so far.
        self._part = self._smallest = self._whole
        self._smallest_lowered = 0
        self._limit = _PLAIN_SECONDS

    def run(self) -> None:
        """All steps."""
        self._found.is_complete = True
        self._found.nodes_before = self._found.nodes = self._whole.size
        self._found.sources = source_lines(self._whole)
        if self._found.backend or not can_fork():
            return
        import_compiler()
        warm_up(self._whole)
        measured = self._measure_growth()
        if measured is None:
            return
        self._found.is_complete = False
        self._shrink()
        self._locate(measured)
        self._write_script()
        if self._with_workaround:
            self._find_workaround()
        self._found.is_complete = True
        self._save()

    def _say(self, text: str) -> None:
        say(self._place, text)

    def _save(self) -> None:
        self._found.candidates_tried = self._forks.count
        write_found(self._found, self._place)

    # --- steps --------------------------------------------------------------------------------

    def _measure_growth(self) -> Measured | None:
        """Growing parts of the graph beside plain graphs; None if nothing is out of proportion."""
        nodes = self._whole.size
        if not self._measure_plain(*self._plain_sizes(self._lowered)):
            return None
        stage = self._suspected.stage
        self._limit = 2 * seconds_to_be_slow(self._plain, self._lowered, TIMES_PLAIN, stage)
        until = self._until(stage)
        costs: list[CompileCost] = []
        measured = None
        for part in self._parts():
            self._say(f"compiling the first {part.size} of {nodes} nodes")
            measured = measure(part, self._forks, seconds=self._limit, until=until)
            if measured.error:
                self._found.alone = measured.failed
                return None
            costs.append(self._counted(measured.cost))
            self._part = part
            if measured.cost.ended_in or self._is_clear(costs):
                break
        explosion = self._confirmed(costs, until)
        self._found.slow = SlowCompileFound(explosion, sizes_by="the first nodes of the graph")
        if explosion is None:
            self._found.alone = _in_proportion(costs, self._plain)
            return None
        self._found.reproduces = True
        self._found.failure = Failure(SLOW, said_of(explosion), stage=explosion.stage)
        self._save()
        return measured

    def _measure_plain(self, *sizes: int) -> bool:
        """Compile plain graphs, of which the slowest count; False if they cannot be compiled."""
        text = " and ".join(map(str, sizes))
        self._say(f"compiling plain graphs of {text} pointwise nodes to compare")
        again = measure_plain(self._whole, sizes, self._forks, seconds=_PLAIN_SECONDS)
        if again[-1].failed:
            self._found.alone = (
                f"a plain graph could not be compiled to compare: {again[-1].failed}"
            )
            return False
        self._plain += [each.cost for each in again]
        return True

    def _counted(self, cost: CompileCost) -> CompileCost:
        """With the nodes that an earlier run has counted, if it was ended before all were."""
        return replace(cost, nodes=max(cost.nodes, self._lowered)) if cost.ended_in else cost

    def _confirmed(self, costs: list[CompileCost], until: str) -> Explosion | None:
        """The explosion that is still there after several turns of plain graphs and this one.

        Of the plain graphs the worst counts, of this one the best.
        """
        for _ in range(_TURNS - 1):
            size = self._plain_sizes(costs[-1].nodes)[-1]
            if certain_explosion(costs, self._plain) is None:
                return None
            if not self._measure_plain(size):
                return None
            self._say(f"compiling the first {self._part.size} nodes once more")
            again = measure(self._part, self._forks, seconds=self._limit, until=until)
            if again.error:
                return None
            costs[-1] = quickest_of(costs[-1], self._counted(again.cost))
        is_measured = self._measure_plain(self._plain_sizes(costs[-1].nodes)[-1])
        return certain_explosion(costs, self._plain) if is_measured else None

    def _plain_sizes(self, nodes: int) -> tuple[int, ...]:
        return plain_sizes(nodes, backward=self._whole.backward)

    def _is_clear(self, costs: list[CompileCost]) -> bool:
        """Whether larger parts would only take longer."""
        cost = costs[-1]
        found = against_plain(cost, self._plain, cost.slowest_stage)
        return len(costs) >= _ENOUGH and is_out_of_proportion(found)

    def _until(self, stage: str) -> str:
        """Native compilers need not run for what is slow before them."""
        is_native = stage in (*stages.NATIVE_COMPILES, stages.WRAPPER, stages.RUNTIME)
        return "" if is_native or self._whole.backward else stages.CODEGEN

    def _parts(self) -> list[Candidate]:
        if has_transforms(self._whole):
            return [self._whole]
        with contextlib.suppress(Exception):  # The whole graph says whether it is slow.
            return growing_parts(self._whole)
        return [self._whole]

    def _shrink(self) -> None:
        stage = self._found.failure.stage
        forks = Forks(uses_gpu=bool(self._whole.device))
        forks.seconds = seconds_to_be_slow(self._plain, self._part.size, TIMES_SMALLEST, stage)
        oracle = SlowOracle(forks, stage=stage, plain=self._plain)
        self._smallest = self._part
        # What is left is made readable, however long the search for few nodes has taken.
        for passes in (SHRINK_PASSES[:1], SHRINK_PASSES[1:-1], SHRINK_PASSES[-1:]):
            oracle.deadline = time.monotonic() + _SHRINK_SECONDS / len(passes)
            subject = Subject(self._smallest, self._found.failure, [])
            for progress in shrink(subject, oracle, passes):
                self._smallest = progress.candidate
                if progress.text:
                    self._say(progress.text)
        self._forks.count += forks.count
        if not all(self._smallest.recipes):
            self._smallest = with_exact_inputs(self._smallest)
        self._found.nodes = self._smallest.size
        self._found.operations = aten_operations(self._smallest)
        self._found.calls = [name_of(node) for node in self._smallest.operations]
        self._found.sources = source_lines(self._smallest)
        self._save()

    def _locate(self, whole: Measured) -> None:
        """The function, the pass and the node that the stage spends its time on."""
        stage = self._found.failure.stage
        until = self._until(stage)
        again = measure(
            self._smallest, self._forks, seconds=2 * self._limit, until=until, stage=stage
        )
        hot = max(whole.hot, again.hot, key=lambda path: path.samples * bool(path.functions))
        self._smallest_lowered = self._counted(again.cost).nodes
        cost = whole.cost if whole.hot.functions and not whole.cost.ended_in else again.cost
        assert self._found.slow is not None
        self._found.slow = replace(
            self._found.slow,
            smallest=against_plain(again.cost, self._plain, stage),
            functions=hot.functions[:12],
            share=round(hot.share, 3),
            samples=hot.samples,
            passes=cost.passes[:4] if stage in stages.PASSES else (),
            lowered=cost.lowered[:4] if stage == stages.LOWERING else (),
        )
        seconds = cost.seconds_of(stage)
        in_passes = stage in stages.PASSES
        self._found.location = Location(
            stage=stage,
            function=hot.function,
            pass_name=_largest(cost.passes, seconds) if in_passes else "",
            operation=_operation(cost, seconds) if stage == stages.LOWERING else "",
            text=self._found.failure.text,
            how="its compile was timed beside plain graphs, and its stacks were sampled",
        )
        self._found.functions = list(hot.functions[:12])
        self._found.replaced = replaced_parts([self._found.location.operation])
        self._save()

    def _write_script(self) -> None:
        try:
            if not all(self._smallest.recipes):
                raise ToolFailure("a script cannot hold an input of this size or type")
            self._found.script = script_text(
                self._smallest,
                self._found.failure,
                title_of(self._found.failure, "", self._found.operations),
                own_passes=replaced_functions_text(self._found.functions),
                lowered=self._smallest_lowered,
            )
        except ToolFailure as error:
            self._found.no_script = str(error)
        self._found.expected_output = expected_output(self._found.failure)
        self._save()

    def _find_workaround(self) -> None:
        smallest = self._found.slow.smallest if self._found.slow else None
        if smallest is None:
            return
        self._say("trying what may make it faster")
        self._found.workarounds = faster_compiles(
            self._smallest,
            self._found.location,
            self._found.operations,
            self._forks,
            until=self._until(self._found.location.stage),
            before=smallest.seconds,
            seconds=2 * smallest.plain_seconds,
        )
        self._save()


def said_of(explosion: Explosion) -> str:
    """One line about an explosion."""
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
    """The operation whose nodes take most of lowering."""
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
