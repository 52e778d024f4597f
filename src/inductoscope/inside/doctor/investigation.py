"""From a failure to its cause, the smallest graph that shows it, and a workaround.

Runs inside the program's process, which waits meanwhile; everything is tried in forks of it. The
findings are written after every step, so that an interruption loses one step.
"""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.doctor.failure import (
    ERROR,
    HANG,
    NAN,
    SIGNAL,
    WRONG,
    Failure,
    Location,
)
from inductoscope.doctor.finding import (
    ALSO_FAILS,
    PROGRAM,
    RIGHT,
    SMALLEST_GRAPH,
    WHOLE_GRAPH,
    FailureFinding,
    Flow,
    GraphWorkarounds,
    Mistake,
    Noticed,
    NotShownAgain,
    Reduction,
    ReplacedParts,
    Script,
    SearchProgress,
    SeenInMemory,
    StepClock,
    Suppressed,
)
from inductoscope.doctor.instructions import Instructions
from inductoscope.errors import InductoscopeError, ToolFailure
from inductoscope.inside.finding_writer import FindingWriter, say
from inductoscope.inside.repro.failure_script import (
    expected_output,
    needed_state,
    repeatable,
    script_text,
    title_of,
)
from inductoscope.inside.repro.replaced_functions import (
    check_tuned_operators,
    own_passes_text,
    replaced_parts,
    replaced_parts_text,
)
from inductoscope.inside.search.axes import AXES
from inductoscope.inside.search.candidate import (
    Candidate,
    compiled_like,
    compiled_plainly,
    healthy_candidate,
    name_of,
    special_flow,
)
from inductoscope.inside.search.compiler_imports import import_compiler, prepare_passes
from inductoscope.inside.search.error_location import (
    guilty_in_program,
    kernel_work,
    locate_error,
    wrong_kernel_in,
)
from inductoscope.inside.search.first_look import Look, first_look, look_closely
from inductoscope.inside.search.forks import ForkAnswer, Forks, can_fork
from inductoscope.inside.search.hang_limits import HangPatience
from inductoscope.inside.search.memory_evidence import (
    MemoryEvidence,
    may_depend_on_memory,
    sanitizer_evidence,
)
from inductoscope.inside.search.oracle import Oracle, TriedCandidate
from inductoscope.inside.search.shrink import Subject, shrink
from inductoscope.inside.search.shrink_passes import (
    PASSES_AROUND_GRAPH,
    SHRINK_PASSES,
    with_exact_inputs,
)
from inductoscope.inside.search.suppressing_axes import find_suppressing_axes, relevant_axes
from inductoscope.inside.search.wrong_result_location import (
    aten_operations,
    locate_wrong_result,
    source_lines,
    worth_trying,
)
from inductoscope.inside.workarounds import try_workarounds
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.stages import PLAIN
from inductoscope.wording import count_of

# The longest that a candidate which does not hang may take, to begin with and for each node.
_FORK_SECONDS, _FORK_SECONDS_PER_NODE = 120.0, 1.0
_NICENESS = 5
_MOST_MISTAKES = 3
# How long to shrink the graph; a candidate that hangs costs more than one that does not.
_SHRINK_SECONDS, _SHRINK_SECONDS_HANG = 900.0, 90.0


class Investigation:
    """One failure, step by step."""

    def __init__(
        self,
        candidate: Candidate,
        finding: FailureFinding,
        place: Path,
        instructions: Instructions,
    ) -> None:
        self._whole = candidate
        self._failure = failure = finding.failure
        self._writer = FindingWriter(finding)
        self._place = place
        self._is_native = failure.stage in (
            stages.CPP_COMPILE,
            stages.TRITON_COMPILE,
            stages.WRAPPER,
            stages.RUNTIME,
        )
        self._instructions = instructions
        self._is_quick = instructions.quick
        self._clock = StepClock("the program, and forks of it")
        self._oracle = Oracle(
            Forks(seconds=self._longest(), uses_gpu=bool(candidate.device)),
            instructions.recordings,
            watch_kernels=failure.kind == SIGNAL or _is_in_kernel(failure),
        )
        self._patience = HangPatience(failure.stage)
        if failure.kind == HANG:
            self._oracle.forks.patience = self._patience
        self._smallest = candidate
        self._location = Location()
        # How the program itself reaches Inductor, and its graph on that way.
        self._flow = special_flow(candidate)
        self._own = replace(candidate, earlier=None)
        # What the first look at a wrong result showed, and sets of nodes to try alone.
        self._look: Look | None = None
        self._suspects: list[Sequence[str]] = []
        # Whether torch.compile, where that is not the program's way, makes the graph right.
        self._is_right_plainly = False
        self._mistakes = 0

    def run(self) -> None:
        """All steps."""
        self._claim(Flow(self._flow))
        sources = tuple(source_lines(self._whole))
        reduction = replace(self._finding.reduction, of=self._whole.size, sources=sources)
        self._claim(reduction, WHOLE_GRAPH)
        # Where there are no forks, it would hang or die here too.
        hangs_here = self._failure.kind in (HANG, SIGNAL) and not can_fork()
        if not (self._finding.advice or self._finding.fact(Noticed).backend or hangs_here):
            self._search()
        self._report(is_complete=True)

    def _search(self) -> None:
        import_compiler()
        if not self._whole.device:
            prepare_passes(self._failure.stage)
        with self._step("showing it again, and locating it"):
            self._reproduce()
            if self._finding.reproduces:
                self._name_kernel()
                self._locate_roughly()
        finding = self._finding
        if finding.reproduces and not (self._is_quick and finding.is_located):
            with searching_on_cluster(
                self._oracle, self._whole, self._failure, self._instructions, say
            ):
                self._shrink_and_prove()

    def _shrink_and_prove(self) -> None:
        """From the place to the smallest graph, and what can be done with that."""
        with self._step("cutting the graph down"):
            self._shrink()
        with self._step("locating it in the smallest graph"):
            self._locate()
        if self._is_quick:
            return
        with self._step("writing the reproducer"):
            self._write_script()
        # The proof runs now, and goes first; this process is not needed for anything else.
        os.nice(_NICENESS)
        with self._step("trying without single parts of the compiler"):
            self._find_suppressing_axes()
        if self._instructions.with_workaround:
            with self._step("trying workarounds on the graph"):
                self._find_workarounds()
        with self._step("looking at memory"):
            self._ask_sanitizer()

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        with self._clock.step(name):
            yield
        self._report()

    def _longest(self) -> float:
        """Seconds that a fork may take: a large graph may be slow, a small one is not."""
        if self._failure.kind != HANG:
            return _FORK_SECONDS + _FORK_SECONDS_PER_NODE * self._whole.size
        return self._instructions.stall  # One that hangs is ended long before: see `hang_limits`.

    @property
    def _finding(self) -> FailureFinding:
        return self._writer.finding

    def _claim(self, fact: Any, shown_by: str = "") -> None:
        self._writer.claim(fact, shown_by)

    def _report(self, *, is_complete: bool = False) -> None:
        """Claim how far the search got, and what went wrong in the tool itself."""
        for text in self._oracle.mistakes[self._mistakes : _MOST_MISTAKES]:
            self._claim(Mistake(text))
            self._mistakes += 1
        candidates = self._oracle.forks.count
        self._claim(SearchProgress(candidates, tuple(self._clock.times), is_complete=is_complete))

    # --- steps --------------------------------------------------------------------------------

    def _reproduce(self) -> None:
        """The failure must show in a fork before the search starts."""
        again = None
        for way in ways_to_show(self._whole, self._flow, self._failure):
            say(way.text)
            again = self._shown_by(way.candidate)
            if again is not None and is_again(again, self._failure):
                self._whole = way.candidate
                # What was right in other memory was right by chance.
                self._is_right_plainly &= not way.candidate.guarded
                break
            if self._flow and not special_flow(way.candidate):
                could_not_be_tried = self._oracle.mistakes or self._oracle.eager_error
                self._is_right_plainly = again is None and not could_not_be_tried
        if self._is_right_plainly:
            self._claim(Flow(self._flow, RIGHT))
        if again is None or not is_again(again, self._failure):
            instead = self._said_alone(again).partition("\n")[0][:300]
            self._claim(NotShownAgain(instead), WHOLE_GRAPH)
            return
        self._claim(again, WHOLE_GRAPH)
        self._failure = again
        self._patience.stage = again.stage
        if again.kind in (ERROR, HANG) and not self._whole.backward:
            self._oracle.stage = again.stage  # "" or runtime for all that is not a compile.

    def _tried(self, candidate: Candidate) -> Failure | None:
        """The failure of a candidate; a healthy one beside it shows what its compiler takes."""
        healthy = healthy_candidate(candidate) if self._is_native else None
        beside = [healthy] if self._failure.kind == HANG and healthy is not None else []
        return next(self._oracle.failures([candidate, *beside]))

    def _name_kernel(self) -> None:
        """The guilty kernel by its name in the program; the smallest graph has other ones."""
        if not self._flow or self._failure.stage not in ("", stages.RUNTIME):
            return
        say("comparing every kernel of the program with eager")
        self._location = found = guilty_in_program(self._own, self._oracle.forks)
        self._claim(found, PROGRAM)
        if found.kernel or found.operation:
            kind = "kernel" if found.kernel else "operator"
            say(f"the guilty {kind} is {found.kernel or found.operation}: {found.text}")

    def _said_alone(self, again: Failure | None) -> str:
        if again is not None:
            return again.text
        if self._oracle.mistakes:
            return "it could not be tried"
        return self._oracle.eager_error or "it is right"

    def _shown_by(self, candidate: Candidate) -> Failure | None:
        """What a candidate does; of a wrong result also where it is made."""
        if self._failure.kind == SIGNAL and self._failure.stage == stages.RUNTIME:
            return self._dies_in_kernel(candidate)
        if self._failure.kind not in (WRONG, NAN):
            return self._tried(candidate)
        self._look = first_look(candidate, self._failure, self._oracle, self._tell_place)
        return self._look.failure

    def _dies_in_kernel(self, candidate: Candidate) -> Failure | None:
        """The kernel that kills the process, and whether an earlier one is to blame."""
        answers = dict(self._oracle.as_known([candidate, kernel_work(candidate)]))
        again, watched = answers[0], answers[1]
        if isinstance(watched, ForkAnswer) and isinstance(again, Failure):
            self._tell_place(again, wrong_kernel_in(watched).location)
        return again if isinstance(again, Failure) else None

    def _tell_place(self, again: Failure, location: Location) -> None:
        """While something else is still looked for."""
        if not is_again(again, self._failure):
            return
        self._claim(again, WHOLE_GRAPH)
        self._claim(location, WHOLE_GRAPH)
        self._location = location

    def _locate_roughly(self) -> None:
        """Where it is made in the whole graph, and which nodes may be enough to show it."""
        look = self._look
        if look is None:
            names = [node.name for node in self._whole.operations]
            self._suspects += [[name] for name in names if name == self._failure.detail][:1]
            self._suspects += [self._location.suspects] if self._location.suspects else []
            return
        self._location = look.location
        if self._failure.aspect != look.aspect:
            aspect = self._failure.aspect
            self._location = locate_wrong_result(self._whole, self._oracle.forks, aspect)
        self._claim(self._location, WHOLE_GRAPH)
        if self._whole.counts:
            # Many operations lay out results differently on their own; only the outputs count.
            outputs = self._whole.module.graph.output_node()
            self._suspects = [[node.name for node in outputs.all_input_nodes]]
        self._suspects += [[name] for name in worth_trying(self._whole, look.wrong_alone)]
        self._suspects += [self._location.suspects] if self._location.suspects else []

    def _shrink(self) -> None:
        longest = _SHRINK_SECONDS_HANG if self._failure.kind == HANG else _SHRINK_SECONDS
        self._oracle.deadline = time.monotonic() + longest
        subject = Subject(self._whole, self._failure, self._suspects, self._location.of_kernel)
        # A trial that hangs takes longer than one that fails.
        at_once = PASSES_AROUND_GRAPH if self._failure.kind == HANG else ()
        for progress in shrink(subject, self._oracle, SHRINK_PASSES, at_once):
            self._keep(progress.candidate)
            if progress.text:
                say(progress.text)

    def _keep(self, candidate: Candidate) -> Candidate:
        self._smallest = candidate
        self._claim(reduction_to(candidate, self._finding.reduction.of), SMALLEST_GRAPH)
        return candidate

    def _locate(self) -> None:
        """Locate the failure in the smallest graph, where little is left to be wrong."""
        self._oracle.deadline = math.inf
        self._oracle.stage = ""
        if self._failure.kind in (WRONG, NAN):
            self._locate_wrong_result()
        else:
            self._locate_failure()
        if self._is_right_plainly and not self._location.is_known:
            how = _ONLY_IN_PACKAGE if self._location.kernel else ""
            self._location = replace(self._location, stage=stages.WRAPPER, how=how)
        self._claim(self._location, SMALLEST_GRAPH)
        named = [self._location.operation, *self._location.names]
        parts = replaced_parts([*named, *self._finding.reduction.operations])
        self._claim(ReplacedParts(tuple(parts)))

    def _locate_wrong_result(self) -> None:
        say("locating it in the smallest graph")
        close = look_closely(self._smallest, self._failure, self._oracle)
        if not self._is_shown_by(close.failure):
            close = look_closely(self._smallest, self._failure, self._oracle)
        if close.location.is_known or close.location.operation:
            self._location = close.location
        self._take_evidence(close.memory)

    def _locate_failure(self) -> None:
        """Of an error, a crash or a hang."""
        with self._patience.to_be_sure():
            final = self._oracle.failure(self._smallest, label=" in full")
        self._is_shown_by(final)
        self._location = locate_error(self._smallest, self._failure, self._oracle.forks)

    def _is_shown_by(self, final: Failure | None) -> bool:
        """Whether the smallest graph, compiled in full, still shows it; otherwise take it back."""
        if final is None or not final.is_same_as(self._failure):
            # A slow candidate was mistaken for a hang, or it fails intermittently.
            self._keep(with_exact_inputs(self._whole))
            return False
        self._claim(final, SMALLEST_GRAPH)
        self._failure = final
        return True

    def _take_evidence(self, evidence: MemoryEvidence) -> None:
        """Whether it reads what is not its own; the script then fails in such memory alone."""
        self._claim(SeenInMemory(tuple(evidence.texts)), SMALLEST_GRAPH)
        if evidence.fault is None:
            return
        guarded = replace(compiled_plainly(self._smallest), guarded=True)
        again = self._oracle.failure(guarded, label=" in full")
        if again is None or not again.is_same_as(self._failure):
            return  # It may have another cause as well.
        self._claim(SeenInMemory(tuple(evidence.texts), evidence.fault.text), SMALLEST_GRAPH)
        kernel = evidence.fault.kernel or self._location.kernel
        self._location = replace(self._location, kernel=kernel)
        self._smallest = guarded

    def _ask_sanitizer(self) -> None:
        """Last, since it takes longest and the proof does not need it."""
        texts = sanitizer_evidence(self._smallest, self._failure, self._oracle.forks, self._place)
        seen = self._finding.fact(SeenInMemory)
        self._claim(replace(seen, texts=(*seen.texts, *texts)), SMALLEST_GRAPH)

    def _write_script(self) -> None:
        subject = ScriptSubject(
            self._smallest, self._own, self._flow, self._failure, self._location
        )
        write_script(subject, self._writer, self._oracle)

    def _find_suppressing_axes(self) -> None:
        """Axes without which the failure disappears."""
        axes = relevant_axes(self._smallest, self._failure, self._location)
        say(f"trying without: {', '.join(axis.name for axis in axes)}")
        found = find_suppressing_axes(self._smallest, self._failure, axes, self._oracle.forks)
        self._claim(Suppressed(tuple(found)), SMALLEST_GRAPH)

    def _find_workarounds(self) -> None:
        say("trying workarounds")
        axes = {axis.name: axis for axis in AXES}
        suppressed = self._finding.fact(Suppressed).axes
        known = [(axes[each.axis], each.application) for each in suppressed]
        found = try_workarounds(self._whole, self._finding, self._location, known, self._oracle)
        self._claim(GraphWorkarounds(tuple(found)), WHOLE_GRAPH)


_ONLY_IN_PACKAGE = (
    "each buffer was compared with its node; the same graph is right with torch.compile and a "
    "wrapper in Python"
)


def _is_in_kernel(failure: Failure) -> bool:
    """Whether a kernel never returns, rather than the compiler."""
    return failure.kind == HANG and failure.stage == stages.RUNTIME


# --- The ways in which a failure that the program showed may show again ---------------------------


@dataclass(frozen=True)
class WayToShow:
    """A candidate that may show the failure, and what to say while it is tried."""

    text: str
    candidate: Candidate


def ways_to_show(whole: Candidate, flow: str, failure: Failure) -> Iterator[WayToShow]:
    """The candidate as it may fail alone, the cheapest to try first."""
    alone = replace(whole, earlier=None)
    if flow:
        text = f"trying the same graph with {PLAIN[flow]} ({alone.size} nodes)"
        yield WayToShow(text, compiled_plainly(alone))
        yield WayToShow(f"reproducing it with {flow} in a fork", alone)
    else:
        yield WayToShow(f"reproducing it in a fork ({alone.size} nodes)", alone)
    if whole.earlier is not None:
        yield WayToShow("it may need an earlier call; trying with that call", whole)
    if may_depend_on_memory(whole, failure):
        text = "it may depend on what lies in memory; trying with NaN around every buffer"
        yield WayToShow(text, replace(compiled_plainly(alone), guarded=True))


def is_again(again: Failure, first: Failure) -> bool:
    """Whether the graph alone shows what the program showed.

    An exception has to be the same one: the graph may not be one that Dynamo takes. A kernel that
    Triton refuses may be refused with another exception, depending on which process compiles it.
    """
    if first.kind == again.kind == ERROR and first.stage == again.stage == stages.TRITON_COMPILE:
        return True
    is_alike = first.kind != ERROR and again.kind == first.kind
    return is_alike or again.is_same_as(first)


# --- Writes the reproducer of the smallest graph --------------------------------------------------


def reduction_to(candidate: Candidate, of: int) -> Reduction:
    """What is left of a graph of so many nodes."""
    return Reduction(
        candidate.size,
        of,
        tuple(aten_operations(candidate)),
        tuple(name_of(node) for node in candidate.operations),
        tuple(source_lines(candidate)),
    )


@dataclass(frozen=True)
class ScriptSubject:
    """What a script is to show."""

    smallest: Candidate
    # The program's own graph, and the way on which that reaches Inductor.
    own: Candidate
    flow: str
    failure: Failure
    location: Location


def write_script(subject: ScriptSubject, writer: FindingWriter, oracle: Oracle) -> None:
    """Claim the script, or why there is none."""
    smallest, failure = subject.smallest, subject.failure
    text, why_not = "", ""
    try:
        if not all([*smallest.recipes, *smallest.earlier_recipes]):
            raise ToolFailure("a script cannot hold an input of this size or type")
        if subject.location.stage == stages.AUTOTUNE:
            check_tuned_operators(smallest.module)
        passes = own_passes_text() if subject.location.own_pass else ""
        known = writer.finding.fact(ReplacedParts)
        replaced, not_held = replaced_parts_text(known.parts)
        writer.claim(replace(known, not_held=not_held))
        candidate = _as_in_program(subject, repeatable(smallest, oracle.forks), writer, oracle)
        title = title_of(failure, candidate.flow, writer.finding.reduction.operations)
        text = script_text(
            candidate,
            failure,
            title,
            state=needed_state(candidate, failure, oracle),
            own_passes="\n\n\n".join(filter(None, [passes, replaced])),
        )
    except ToolFailure as error:
        why_not = str(error)
    writer.claim(Script(text, tuple(expected_output(failure)), why_not), SMALLEST_GRAPH)


def _as_in_program(
    subject: ScriptSubject, smallest: Candidate, writer: FindingWriter, oracle: Oracle
) -> Candidate:
    """The way that the program takes, if it fails there as well."""
    way = special_flow(smallest)
    if subject.flow and not way:
        writer.claim(Flow(subject.flow, ALSO_FAILS))
    if way == subject.flow or smallest.guarded:
        return smallest  # A script cannot fill the buffers of a C++ wrapper.
    candidate = compiled_like(smallest, subject.own)
    say(f"trying the smallest graph with {subject.flow}")
    again = oracle.failure(candidate, label=" in full")
    return candidate if again is not None and again.is_same_as(subject.failure) else smallest


# --- Has a search use a cluster, if the user has one and the failure shows there ------------------


@contextlib.contextmanager
def searching_on_cluster(
    oracle: Oracle,
    candidate: Candidate,
    failure: Failure,
    instructions: Instructions,
    say: Callable[[str], None],
) -> Iterator[None]:
    """Inside the block, the workers of the cluster try the oracle's candidates."""
    if not instructions.executor:
        yield
        return
    # Only now: a program that is well never loads it.
    from inductoscope.inside.search.cluster_forks import ClusterForks
    from inductoscope.processes.cluster import connect

    try:
        cluster = connect(instructions.executor, any_versions=instructions.any_worker)
    except InductoscopeError as error:
        say(f"the search stays on this machine: {error}")
        yield
        return
    here, forks = oracle.forks, ClusterForks(oracle.forks, cluster, say)
    try:
        say(f"trying the failing graph on {count_of(len(cluster.workers), 'worker')}")
        whole = TriedCandidate(candidate, oracle.stage, oracle.watch_kernels)
        if forks.use_those_that_show(whole, failure):
            say(f"searching with {count_of(len(forks.able), 'worker')} of {instructions.executor}")
            oracle.forks = forks
        else:
            say("the search stays on this machine")
        yield
    finally:
        oracle.forks, here.count = here, forks.count
        forks.close()
