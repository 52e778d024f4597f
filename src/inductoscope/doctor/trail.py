"""The culprit kernel in the recording of the program, and the trail from the fault back to it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.failure import NAN, WRONG, Failure
from inductoscope.doctor.finding import WHOLE_GRAPH, FailureFinding
from inductoscope.doctor.judgement import place_in_program, relative_place
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import Compile, Recording
from inductoscope.model.fault_trail import FaultTrail, GuiltyPlace, TrailStep, fault_trail
from inductoscope.model.fx import FxNode
from inductoscope.model.join import GraphJoin
from inductoscope.torch_facts.package_wrappers import is_same_operator

_OUTPUT = re.compile(r"output (\d{1,6})$")


def look_up(verdict: Verdict, finding: FailureFinding, case: ProgramCase) -> None:
    """Add what the recording tells of the failure; an error in that does not affect the rest."""
    try:
        name_as_recorded(verdict, finding, case.recording)
        if verdict.culprit.kernel:
            verdict.trail = trail_of(finding, case.recording)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        case.say(f"the way from the fault to its cause could not be looked up: {what}")


def name_as_recorded(verdict: Verdict, finding: FailureFinding, recording: Recording) -> None:
    """Name the compiled function, the culprit's line, and its kernel as the recording does."""
    program = verdict.program
    compiles = [compile_ for compile_ in recording.compiles if compile_.id == finding.compile]
    if program is None or not compiles:
        return
    if len({each.process for each in compiles}) > 1 and len(set(map(_compiled, compiles))) > 1:
        return  # Processes that number their compiles alike compiled different functions.
    last = compiles[-1]
    program.function = f"rest of {last.resumed}" if last.resumed else last.function
    graphs = [GraphJoin(recording, each, graph) for each in compiles for graph in each.inductor]
    named = {verdict.headline.operation} - {""}
    lines = {_line(node) for join in graphs for node in _nodes(join, named)}
    lines &= {relative_place(source) for source in finding.reduction.sources}
    if len(lines) == 1:
        verdict.culprit.source = lines.pop()
    if any(join.graph.kernels for join in graphs):
        verdict.culprit.kernel = program.kernel = _recorded_kernel(verdict, graphs)


def _compiled(each: Compile) -> tuple[str, int, str, str]:
    return each.file, each.line, each.function, each.resumed


def _recorded_kernel(verdict: Verdict, graphs: Sequence[GraphJoin]) -> str | None:
    """Return the kernel of the program; if its name is not known, the one with the operation."""
    known, left = verdict.culprit.kernel or "", verdict.reduction
    kernels = {kernel.name for join in graphs for kernel in join.graph.kernels}
    if known in kernels:
        return known
    found = {name for name in kernels if known and is_same_operator(name, known)}
    if not found and (known or (left is not None and left.kernel)):
        found = set(_kernels_with(verdict.culprit, graphs))
    return found.pop() if len(found) == 1 else None


def _kernels_with(culprit: Culprit, graphs: Sequence[GraphJoin]) -> Iterator[str]:
    """Yield the kernels that compute the culprit operation, on the culprit line if any do."""
    operations = set((culprit.op or "").split(", ")) - {""}
    found = [
        (_line(node), kernel.name)
        for join in graphs
        for node in _nodes(join, operations)
        for kernel in join.kernels(join.leaves(node))
    ]
    on_line = [pair for pair in found if pair[0] == culprit.source]
    yield from (name for _, name in on_line or found)


def _nodes(join: GraphJoin, operations: Set[str]) -> Iterator[FxNode]:
    """Yield the nodes of these names or operations, also if decompositions made them of those."""
    for node in join.final.calls if join.final else ():
        if operations & {node.name, node.target, node.aten}:
            yield node


def _line(node: FxNode) -> str:
    return relative_place(str(node.place)) if node.place else ""


def trail_of(finding: FailureFinding, recording: Recording) -> FaultTrail | None:
    """Return the trail; None if the kernel's name in the program's own graph is unknown."""
    failure = finding.latest(Failure, WHOLE_GRAPH) or finding.failure
    place = place_in_program(finding)
    if place is None or not place.kernel:
        return None
    is_value = failure.kind in (WRONG, NAN)
    outputs = tuple(int(found[1]) for each in failure.where if (found := _OUTPUT.match(each)))
    guilty = GuiltyPlace(
        kernel=place.kernel,
        buffer=place.buffer,
        overwrites=place.is_overwritten,
        outputs=outputs if is_value else (),
        # The kernel that dies, hangs or raises: the culprit, or one that its buffer leads to.
        fails="" if is_value else failure.function if place.buffer else place.kernel,
    )
    trail = fault_trail(recording, finding.compile, guilty)
    if trail is None:
        return None
    fault = failure.text.strip().partition("\n")[0][:300]
    steps = tuple(map(_with_short_places, trail.steps))
    return replace(trail, steps=steps, fault=fault, wrong=place.text[:1500], how=place.how)


def _with_short_places(step: TrailStep) -> TrailStep:
    """Make places relative to the current folder, as in the rest of the verdict."""
    buffers, reads = (
        tuple(replace(each, source=relative_place(each.source)) for each in group)
        for group in (step.buffers, step.reads)
    )
    return replace(step, buffers=buffers, reads=reads)
