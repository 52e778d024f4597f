"""An investigation: how it starts, leads from a failure to its cause, and ends the program.

It finds the cause, the smallest graph that shows the failure, and a workaround. It runs inside the
program's process, which waits meanwhile, or in a copy of it; everything is tried in forks. The
findings are written after every step, so that an interruption loses one step.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from inductoscope.doctor.failure import HANG, NAN, SIGNAL, SLOW, WRONG, Failure, Location
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
    finding_in,
)
from inductoscope.doctor.instructions import INVESTIGATING, STOPPED, Instructions
from inductoscope.errors import InductoscopeError, ToolFailure
from inductoscope.inside.doctor.program_copy import program_copy
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
from inductoscope.inside.scope import SCOPE, say
from inductoscope.inside.search.axes import AXES, find_suppressing_axes, relevant_axes
from inductoscope.inside.search.candidate import Candidate, compiled_like, name_of, special_flow
from inductoscope.inside.search.compiler_imports import import_compiler, prepare_passes
from inductoscope.inside.search.failure_signature import first_to_last, raising_functions
from inductoscope.inside.search.forks import Forks, can_fork
from inductoscope.inside.search.hang_limits import HangPatience
from inductoscope.inside.search.location import (
    aten_operations,
    guilty_in_program,
    kernel_called_from,
    places_of,
    source_lines,
)
from inductoscope.inside.search.memory_evidence import sanitizer_evidence
from inductoscope.inside.search.oracle import Oracle, PlainTrial
from inductoscope.inside.search.steps import (
    Located,
    Verified,
    in_filled_memory,
    locate,
    place_of,
    shrink,
    verify,
)
from inductoscope.inside.workarounds import try_workarounds
from inductoscope.processes.status import is_alive
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.python_wrappers import nodes_of_kernel
from inductoscope.wording import count_of

# The longest that a candidate which does not hang may take, to begin with and for each node.
_FORK_SECONDS, _FORK_SECONDS_PER_NODE = 120.0, 1.0
_NICENESS = 5
_MOST_MISTAKES = 3


def investigate_and_stop(
    candidate: Candidate, finding: FailureFinding, folder: Path, instructions: Instructions
) -> NoReturn:
    """Investigate, record the findings, and end the program."""
    _wait_for_others(folder)
    try:
        say(f"found: {finding.failure.text.partition(chr(10))[0]}")
        _record(finding)
        _investigate_here_or_in_copy(candidate, finding, folder, instructions)
    except BaseException:
        _record(FailureFinding().claimed(Mistake("".join(traceback.format_exc())[-3000:])))
    _stop()


def _investigate_here_or_in_copy(
    candidate: Candidate, finding: FailureFinding, folder: Path, instructions: Instructions
) -> None:
    """Investigate in this process, or in its copy if it uses a GPU and cannot fork."""
    copy = None if can_fork() else program_copy()
    if copy is None:
        if not is_device_lost():
            investigate(candidate, finding, folder, instructions)
        return
    try:
        copy.run(investigate, candidate, finding, folder, instructions, folder=folder)
    except ToolFailure as error:
        _record(FailureFinding().claimed(Mistake(str(error))))
        known = finding_in(folder.parent) or finding
        if not known.reproduces and not is_device_lost():
            investigate(candidate, known, folder, instructions)


def stop_with(finding: FailureFinding) -> NoReturn:
    _record(finding)
    _stop()


def _stop() -> NoReturn:
    SCOPE.close()
    os._exit(STOPPED)


def describe_own_process() -> str:
    """Return the rank, or the script, of this process."""
    rank = os.environ.get("RANK")
    if rank is not None:
        return f"rank {rank} of {os.environ.get('WORLD_SIZE', '?')}"
    return os.path.basename(sys.argv[0])


def _wait_for_others(folder: Path) -> None:
    """Claim the investigation, or wait until the process that claimed it is done, and exit.

    If the others continued or ended, their launcher could end all of them.
    """
    mark = folder / INVESTIGATING
    try:
        with mark.open("x") as file:
            file.write(str(os.getpid()))
        return
    except FileExistsError:
        pass
    except OSError:
        return
    while is_alive(int(mark.read_text() or os.getpid())):
        time.sleep(0.5)
    os._exit(STOPPED)


def investigate(
    candidate: Candidate, finding: FailureFinding, folder: Path, instructions: Instructions
) -> None:
    """Run the investigation that fits the kind of failure."""
    from inductoscope.inside.doctor.slow_investigation import GrowthMeasurement, SlowInvestigation

    arguments = candidate, finding, folder, instructions
    if finding.kind != SLOW:
        Investigation(*arguments).run()
    elif instructions.grow:
        GrowthMeasurement(*arguments).run()
    else:
        SlowInvestigation(*arguments).run()


# --- what is found, written claim by claim --------------------------------------------------------


class FindingWriter:
    """An investigation whose finding grows; each claim is written to the recording immediately."""

    def __init__(self, finding: FailureFinding) -> None:
        self._finding = finding

    def _claim(self, fact: Any, shown_by: str = "") -> None:
        """Add a claim and record it, unless it repeats the last claim of its kind."""
        grown = self._finding.claimed(fact, shown_by)
        same = [claim for claim in self._finding.claims if type(claim.fact) is type(fact)]
        if same and same[-1] == grown.claims[-1]:
            return
        self._finding = grown
        SCOPE.emit(grown.claims[-1].as_event())


def _record(finding: FailureFinding) -> None:
    for claim in finding.claims:
        SCOPE.emit(claim.as_event())


# --- the steps of an investigation ----------------------------------------------------------------


class Investigation(FindingWriter):
    """The investigation of one failure, step by step."""

    def __init__(
        self,
        candidate: Candidate,
        finding: FailureFinding,
        folder: Path,
        instructions: Instructions,
    ) -> None:
        super().__init__(finding)
        self._whole = candidate
        self._failure = failure = finding.failure
        self._folder = folder
        self._instructions = instructions
        self._is_quick = instructions.quick
        self._clock = StepClock("the program, and forks of it")
        self._oracle = Oracle(
            Forks(seconds=self._longest(), uses_gpu=bool(candidate.device)),
            instructions.recordings,
            watch_kernels=failure.kind == SIGNAL or _is_in_kernel(failure),
        )
        if failure.kind == HANG:
            self._oracle.forks.patience = HangPatience(failure.stage)
        self._smallest = candidate
        self._location = Location()
        # How the program itself reaches Inductor, and its graph through that flow.
        self._flow = special_flow(candidate)
        self._own = replace(candidate, earlier=None)
        self._verified = Verified(candidate)
        # Whether plain torch.compile gives right results, if the program uses another flow.
        self._is_right_plainly = False
        self._mistakes = 0

    def run(self) -> None:
        self._claim(Flow(self._flow))
        sources = tuple(source_lines(self._whole))
        # The candidate may be a part of the program's graph already.
        nodes = max(self._whole.size, self._finding.reduction.of)
        reduction = replace(self._finding.reduction, of=nodes, sources=sources)
        self._claim(reduction, WHOLE_GRAPH)
        # Without forks, this process would hang or die too.
        hangs_here = self._failure.kind in (HANG, SIGNAL) and not can_fork()
        if not (self._finding.advice or self._finding.fact(Noticed).backend or hangs_here):
            self._search()
        self._report(is_complete=True)

    def _search(self) -> None:
        import_compiler()
        if not self._whole.device:
            prepare_passes(self._failure.stage)
        with self._step("showing it again, and locating it"):
            self._verify()
            if self._finding.reproduces:
                self._name_kernel()
                if self._verified.look is not None:
                    found = place_of(self._verified.look, self._verified, self._oracle)
                    self._set_location(found, WHOLE_GRAPH)
        finding = self._finding
        if finding.reproduces and not (self._is_quick and finding.is_located):
            with self._on_cluster():
                self._shrink_and_prove()

    def _shrink_and_prove(self) -> None:
        """Shrink the graph, locate the failure in it, and write the script."""
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
            # The sanitizers run last, since they take longest and the proof does not need them.
            texts = sanitizer_evidence(
                self._smallest, self._failure, self._oracle.forks, self._folder
            )
            seen = self._finding.fact(SeenInMemory)
            self._claim(replace(seen, texts=(*seen.texts, *texts)), SMALLEST_GRAPH)

    @contextlib.contextmanager
    def _step(self, name: str) -> Iterator[None]:
        with self._clock.step(name):
            yield
        self._report()

    def _longest(self) -> float:
        """Return the time limit of a fork in seconds, which grows with the graph."""
        if self._failure.kind != HANG:
            return _FORK_SECONDS + _FORK_SECONDS_PER_NODE * self._whole.size
        return self._instructions.stall  # `hang_limits` kills a hung fork long before.

    def _report(self, *, is_complete: bool = False) -> None:
        """Claim the progress of the search, and the tool's own mistakes."""
        for text in self._oracle.mistakes[self._mistakes : _MOST_MISTAKES]:
            self._claim(Mistake(text))
            self._mistakes += 1
        candidates = self._oracle.forks.count
        self._claim(SearchProgress(candidates, tuple(self._clock.times), is_complete=is_complete))

    # --- steps --------------------------------------------------------------------------------

    def _verify(self) -> None:
        """Reproduce the failure in a fork before the search starts."""
        found = verify(self._whole, self._failure, self._oracle, say, self._tell_place)
        self._is_right_plainly = found.is_right_plainly
        if found.is_right_plainly:
            self._claim(Flow(self._flow, RIGHT))
        if found.failure is None or not found.is_shown:
            if found.failure is not None:
                instead = found.failure.text
            elif self._oracle.mistakes:
                instead = "it could not be tried"
            else:
                instead = self._oracle.eager_error or "it is right"
            self._claim(NotShownAgain(instead.partition("\n")[0][:300]), WHOLE_GRAPH)
            return
        self._claim(found.failure, WHOLE_GRAPH)
        self._verified, self._whole, self._failure = found, found.candidate, found.failure

    def _name_kernel(self) -> None:
        """Find the guilty kernel's name in the program; the smallest graph has other kernels."""
        if not self._flow or self._failure.stage not in ("", stages.RUNTIME):
            return
        say("comparing every kernel of the program with eager")
        found = guilty_in_program(self._own, self._oracle.forks)
        self._set_location(found, PROGRAM)
        if found.kernel or found.operation:
            kind = "kernel" if found.kernel else "operator"
            say(f"the guilty {kind} is {found.kernel or found.operation}: {found.text}")

    def _tell_place(self, again: Failure, location: Location) -> None:
        """Claim the location while other work is still running."""
        self._claim(again, WHOLE_GRAPH)
        self._set_location(location, WHOLE_GRAPH)

    def _set_location(self, location: Location, shown_by: str) -> None:
        self._location = location
        self._claim(location, shown_by)

    def _shrink(self) -> None:
        for progress in shrink(self._verified, self._location, self._oracle):
            self._keep(progress.candidate)
            if progress.text:
                say(progress.text)

    def _keep(self, candidate: Candidate) -> Candidate:
        self._smallest = candidate
        self._claim(reduction_to(candidate, self._finding.reduction.of), SMALLEST_GRAPH)
        return candidate

    def _locate(self) -> None:
        """Locate the failure in the smallest graph, where little is left to be wrong."""
        say("locating it in the smallest graph")
        located = locate(self._smallest, self._whole, self._failure, self._oracle)
        if located.failure is None:
            self._keep(located.candidate)
        else:
            self._claim(located.failure, SMALLEST_GRAPH)
            self._failure = located.failure
        is_wrong, known = self._failure.kind in (WRONG, NAN), self._location
        if not is_wrong or located.location.is_known or located.location.operation:
            self._location = located.location
        if is_wrong:
            self._take_evidence(located)
        if self._is_right_plainly and not self._location.is_known:
            how = _ONLY_IN_PACKAGE if self._location.kernel else ""
            self._location = replace(self._location, stage=stages.WRAPPER, how=how)
        # The smallest graph may tell no more than the whole one, whose kernels have other names.
        self._claim(self._location, WHOLE_GRAPH if self._location == known else SMALLEST_GRAPH)
        named = [self._location.operation, *self._location.names]
        parts = replaced_parts([*named, *self._finding.reduction.operations])
        self._claim(ReplacedParts(tuple(parts)))

    def _take_evidence(self, located: Located) -> None:
        """Check for reads of foreign memory; the script then needs filled memory to fail."""
        evidence = located.memory
        self._claim(SeenInMemory(tuple(evidence.texts)), SMALLEST_GRAPH)
        guarded = in_filled_memory(located, self._failure, self._oracle)
        if guarded is None or evidence.fault is None:
            return  # There may be another cause as well.
        self._claim(SeenInMemory(tuple(evidence.texts), evidence.fault.text), SMALLEST_GRAPH)
        kernel = evidence.fault.kernel or self._location.kernel
        self._location = replace(self._location, kernel=kernel)
        self._smallest = guarded

    def _write_script(self) -> None:
        """Claim the script, or the reason that there is none."""
        text, why_not = "", ""
        try:
            text = self._script()
        except ToolFailure as error:
            why_not = str(error)
        expected = tuple(expected_output(self._failure))
        self._claim(Script(text, expected, why_not), SMALLEST_GRAPH)

    def _script(self) -> str:
        smallest, failure, oracle = self._smallest, self._failure, self._oracle
        if not all([*smallest.recipes, *smallest.earlier_recipes]):
            raise ToolFailure("a script cannot hold an input of this size or type")
        if self._location.stage == stages.AUTOTUNE:
            check_tuned_operators(smallest.module)
        passes = own_passes_text() if self._location.own_pass else ""
        known = self._finding.fact(ReplacedParts)
        replaced, not_held = replaced_parts_text(known.parts)
        self._claim(replace(known, not_held=not_held))
        candidate = self._as_in_program(repeatable(smallest, oracle.forks))
        return script_text(
            candidate,
            failure,
            title_of(failure, candidate.flow, self._finding.reduction.operations),
            state=needed_state(candidate, failure, oracle),
            own_passes="\n\n\n".join(filter(None, [passes, replaced])),
        )

    def _as_in_program(self, smallest: Candidate) -> Candidate:
        """Return the candidate compiled through the program's own flow, if it fails there too."""
        way = special_flow(smallest)
        if self._flow and not way:
            self._claim(Flow(self._flow, ALSO_FAILS))
        if way == self._flow or smallest.guarded:
            return smallest  # A script cannot fill the buffers of a C++ wrapper.
        candidate = compiled_like(smallest, self._own)
        say(f"trying the smallest graph with {self._flow}")
        again = self._oracle.failure(candidate, label=" in full")
        return candidate if again is not None and again.is_same_as(self._failure) else smallest

    def _find_suppressing_axes(self) -> None:
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

    @contextlib.contextmanager
    def _on_cluster(self) -> Iterator[None]:
        """Try candidates on the workers of a cluster inside the block.

        This applies if the user has a cluster, and the failure shows on its workers.
        """
        asked, oracle = self._instructions.executor, self._oracle
        if not asked:
            yield
            return
        # Imported late, because a healthy program never needs it.
        from inductoscope.inside.search.cluster_forks import ClusterForks
        from inductoscope.processes.cluster import connect

        try:
            cluster = connect(asked, any_versions=self._instructions.any_worker)
        except InductoscopeError as error:
            say(f"the search stays on this machine: {error}")
            yield
            return
        here, forks = oracle.forks, ClusterForks(oracle.forks, cluster, say)
        try:
            say(f"trying the failing graph on {count_of(len(cluster.workers), 'worker')}")
            whole = PlainTrial(self._whole, oracle.stage, oracle.watch_kernels)
            if forks.use_those_that_show(whole, self._failure):
                say(f"searching with {count_of(len(forks.able), 'worker')} of {asked}")
                oracle.forks = forks
            else:
                say("the search stays on this machine")
            yield
        finally:
            oracle.forks, here.count = here, forks.count
            forks.close()


_ONLY_IN_PACKAGE = (
    "each buffer was compared with its node; the same graph is right with torch.compile and a "
    "wrapper in Python"
)


def _is_in_kernel(failure: Failure) -> bool:
    """Check whether a kernel hangs, rather than the compiler."""
    return failure.kind == HANG and failure.stage == stages.RUNTIME


def reduction_to(candidate: Candidate, of: int) -> Reduction:
    """Describe the candidate as the reduction of a graph of this many nodes."""
    return Reduction(
        candidate.size,
        of,
        tuple(aten_operations(candidate)),
        tuple(name_of(node) for node in candidate.operations),
        tuple(source_lines(candidate)),
    )


# --- A GPU that this process can no longer use: what the error itself says ------------------------
#
# After a failed assertion or an illegal access on a GPU, every later call of the process fails too.
# Nothing can be tried in it, and no fork of it can use the GPU. But under the doctor launches are
# synchronous, so the line of the generated wrapper that raised names the kernel.

_NO_SCRIPT = "after this error the process cannot use the GPU, so nothing could be tried"


def is_device_lost() -> bool:
    """Check whether every call to the GPU fails."""
    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def found_in_error(
    noticed: Noticed, failure: Failure, module: torch.fx.GraphModule, error: BaseException
) -> FailureFinding:
    """Return a finding about the kernel that failed, its operations and source lines."""
    functions = [name for one in first_to_last(error) for name in raising_functions(one)]
    wrapper, kernel = kernel_called_from(functions)
    nodes, operations = _contents(wrapper, kernel)
    text = f"the launch of {kernel} raised the error" if kernel else ""
    how = "every launch was synchronous" if kernel else ""
    sources = tuple(source_lines_of(module, nodes))
    return (
        FailureFinding()
        .claimed(noticed)
        .claimed(replace(failure, functions=tuple(functions[:6])), PROGRAM)
        .claimed(Location(stage=stages.RUNTIME, kernel=kernel, text=text, how=how), PROGRAM)
        .claimed(Reduction(operations=tuple(operations), sources=sources), PROGRAM)
        .claimed(Script(why_not=_NO_SCRIPT))
        .claimed(SearchProgress(is_complete=True))
    )


def _contents(wrapper: str, kernel: str) -> tuple[list[str], list[str]]:
    """Return the nodes and ATen operations in a kernel, from the comments of the wrapper."""
    try:
        return nodes_of_kernel(Path(wrapper).read_text("utf-8", "replace"), kernel)
    except OSError:
        return [], []


def source_lines_of(module: torch.fx.GraphModule, names: list[str]) -> list[str]:
    """Return the lines of the program that nodes of a graph come from."""
    chosen: list[Any] = [node for node in module.graph.nodes if node.name in names]
    return places_of(chosen or [node for node in module.graph.nodes if node.op != "output"])
