"""A checked graph: compiled, run beside eager, compared, and handed to the search if it fails.

A failure is handled when the graph is called: then the inputs are real, no compile is under way,
and the process can be forked to investigate. So an exception of the compiler is held back until
the call. The first call that seems right is examined again, because it may be right by chance.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.failure import ERROR, LOST_CHECK, Failure, Location
from inductoscope.doctor.finding import PROGRAM, FailureFinding, Noticed, Reduction
from inductoscope.doctor.instructions import CALLS_BY_EACH_RANK, MOVED, UNMOVED, Instructions
from inductoscope.inside.compare.beside_eager import Refusal, call_as_in_eager, call_beside_eager
from inductoscope.inside.compare.bug_or_rounding import EagerComparison, described
from inductoscope.inside.compare.collectives import (
    ANSWERED_COLLECTIVES,
    calls_only_torch,
    is_one_of_several_ranks,
)
from inductoscope.inside.compare.graphs import (
    as_function,
    input_names,
    snapshot,
    uninitialised_allocation,
)
from inductoscope.inside.compare.kernels import KEPT_WRAPPERS
from inductoscope.inside.compare.large_calls import (
    CannotJudge,
    LargeCall,
    in_mebibytes,
    is_lack_of_memory,
    written_inputs,
)
from inductoscope.inside.compare.reference import (
    Case,
    with_other_random_numbers,
    with_perturbed_rounding,
)
from inductoscope.inside.compare.values import (
    copy_values,
    needs_backward,
    passing_over_errors,
    release_frames,
    size_in_bytes,
)
from inductoscope.inside.doctor.checked_function import has_returned_in_eager, note_rounding
from inductoscope.inside.doctor.compile_conditions import (
    how_compiled,
    is_compilers_own,
    is_traced,
    no_cuda_graphs,
    without_setting,
)
from inductoscope.inside.doctor.further_checks import (
    CallTrial,
    FailingCandidate,
    failure_in_filled_memory,
    failure_with_inductor_random_numbers,
    hidden_fault,
    try_call,
    try_refused_call,
)
from inductoscope.inside.doctor.large_checks import OF_VALUES, LargeGraph, death_in_fork
from inductoscope.inside.doctor.program_copy import program_copy
from inductoscope.inside.gpu_use import is_capturing
from inductoscope.inside.hooks.dynamo import record_captured_graph
from inductoscope.inside.memory_budget import (
    give_back,
    has_room_for_copies,
    has_room_in_main_memory,
    what_is_free,
)
from inductoscope.inside.observe import current_compile_id, record_error
from inductoscope.inside.program_settings import MarkedSize, backend_of
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate, marked_sizes
from inductoscope.inside.search.failure_signature import (
    failure_of_comparison,
    failure_of_error,
    stage_at_run,
)
from inductoscope.inside.search.forks import can_fork
from inductoscope.inside.search.other_sizes import call_at_other_sizes
from inductoscope.inside.search.placement import kept_in_main_memory
from inductoscope.inside.search.program_state import inductor_settings
from inductoscope.inside.time_share import TimeShare
from inductoscope.recording.events import (
    ANSWERED,
    NAN_LIKELY,
    NAN_REFUSED,
    OTHER_ERROR,
    OUTSIDE,
    TOO_LARGE_TO_COPY,
    WRONG_OUTSIDE,
    CallsShared,
    CallsUnchecked,
    Check,
    CompiledReturned,
    EagerReturned,
    GraphCall,
    GraphReturned,
    NotedDifference,
    SizesTried,
)
from inductoscope.torch_facts.stages import JUST_IN_TIME
from inductoscope.wording import count_of

_SMALL = 64 << 20
# Runs of a large call that a check takes, after the first one: in eager, compiled, and others.
_RUNS_OF_NEXT = 4
# Beyond the calls that are checked in any case, of each graph.
_MOST_MORE_CALLS = 1000
# The time of checks of further calls, in all graphs of a process.
MORE_CALLS = TimeShare(0.25)
MORE_CALLS.start()
# The graphs of a process are numbered: those of all ranks in the same order, as far as they agree.
_NUMBERS = itertools.count()


def compile_checked_graph(
    original: Callable[..., Any],
    instructions: Instructions,
    folder: Path,
    output: Any,
    module: GraphModule,
    examples: Any,
) -> Callable[..., Any]:
    """Compile a graph as the program wants it, or as the instructions say, and check its calls."""
    compile_id = current_compile_id() or "?"
    graph = CheckedGraph(snapshot(module), compile_id, instructions, folder, *how_compiled(output))
    stand_in: Callable[..., Any] = graph.module
    if instructions.captures_every_call:
        SCOPE.guard(record_captured_graph, module)  # As `original` does, which is not called.
    if instructions.backend in (MOVED, UNMOVED):
        return with_perturbed_rounding(stand_in, by=float(instructions.backend == MOVED))
    if instructions.backend and instructions.backend != "eager":
        stand_in = torch._dynamo.lookup_backend(instructions.backend)(module, examples)
    if instructions.backend:
        return _reseeded(stand_in, instructions.reseeded)
    if instructions.stop_at == compile_id:
        graph.to_investigate = instructions.failure
        return graph
    is_checked = instructions.calls > 0
    without = no_cuda_graphs(backend_of(output)) if is_checked else contextlib.nullcontext()
    try:
        with without:
            graph.compiled = _reseeded(original(output, module, examples), instructions.reseeded)
    except Exception as error:
        if not is_compilers_own(error):
            raise
        graph.hold_back(error)
    return graph


def _reseeded(compiled: Callable[..., Any], number: int) -> Callable[..., Any]:
    if not number:
        return compiled
    other = with_other_random_numbers(compiled, number)
    return lambda *arguments: (compiled if is_traced(arguments) else other)(*arguments)


@dataclass
class CheckedGraph:
    """A stand-in for a compiled graph, which checks its first calls."""

    module: GraphModule
    compile_id: str
    instructions: Instructions
    # For the files of the examination.
    folder: Path
    options: dict[str, Any]
    dynamic: bool | None
    # The backend's name, if it is not Inductor.
    backend: str
    compiled: Callable[..., Any] | None = None
    # A failure for the next call to investigate: of the compiler, or the one to stop at.
    to_investigate: Failure | None = None
    error: BaseException | None = None
    calls: int = 0
    # Inputs of the first call, for which the graph was compiled, and what was said of their sizes.
    first: tuple[Any, ...] | None = None
    marks: tuple[MarkedSize, ...] = ()
    # How the graph reached Inductor, and the inputs that a package stores as constants.
    flow: str = JUST_IN_TIME
    constants: frozenset[str] = frozenset()
    # Demands of the compiled code that the inputs break; its behaviour is then undefined.
    outside: str = ""
    # Whether a package takes inputs of other sizes; None if no others are tried.
    admits: Callable[[Sequence[Any]], bool] | None = None
    _is_checking: bool = False
    # Seconds that the latest check took, and whether that was a large call.
    _cost: float = 0.0
    _is_large: bool = False
    # What the kernels of this large call were found to be.
    _kernels: Location = field(default_factory=Location)
    # The seconds that a further check will take at most, if that is known.
    _cost_of_next: float = math.inf
    # The call being checked, in main memory, and what it did in a fork.
    _spare: Candidate | None = None
    _trial: CallTrial = field(default_factory=CallTrial)

    def __post_init__(self) -> None:
        self._notes = CallNotes(self.compile_id)
        self._number = next(_NUMBERS)
        # How far rounding moves the results of a large call.
        self._known_noise: dict[str, float] = {}

    def hold_back(self, error: BaseException) -> None:
        """Keep an exception of the compiler until the graph is called."""
        origin = SCOPE.failure_of(error) or {}
        SCOPE.guard(record_error, error, self.compile_id, origin)
        self.to_investigate = _from(origin, failure_of_error(error))
        self.error = error

    def failure_at_run(self, error: BaseException) -> Failure:
        """Return the failure at run time, possibly in the lazily compiled backward graph."""
        failure = _from(SCOPE.failure_of(error) or {}, failure_of_error(error))
        return failure if failure.stage else replace(failure, stage=stage_at_run(failure))

    def __call__(self, *arguments: Any) -> Any:
        self.check(arguments)
        if self.error is not None:
            raise self.error
        if self.compiled is None:
            return self.module(*arguments)
        wanted = self.instructions.as_in_eager_of(self.compile_id)
        if wanted and not is_traced(arguments):
            return call_as_in_eager(self.module, self.compiled, arguments, wanted)
        return self.compiled(*arguments)

    def check(self, arguments: tuple[Any, ...]) -> None:
        """Compare a call with eager, unless it is made by such a comparison itself."""
        if self._is_checking or is_traced(arguments) or is_capturing():
            return
        self._is_checking = True
        try:
            SCOPE.guard(self._check, arguments)
        finally:
            self._is_checking = False
            KEPT_WRAPPERS.let_go()

    def _check(self, arguments: tuple[Any, ...]) -> None:
        """Run a call beside eager and compare; the search for a failure ends the program."""
        if self.calls == 0 and not self.flow:
            self.marks = marked_sizes(self.module, arguments)
        if self.to_investigate is not None:
            with ANSWERED_COLLECTIVES.answering():
                self._search_for(self.to_investigate, arguments)
        elif self.compiled is not None:
            self.calls += 1
            self._check_if_wanted(arguments, self.compiled)

    def _check_if_wanted(self, arguments: tuple[Any, ...], compiled: Callable[..., Any]) -> None:
        # Of large calls, the first one is checked in any case.
        in_any_case = 1 if self._is_large else self.instructions.calls
        is_more = self.calls > in_any_case
        if is_more and not self._may_check_more():
            self._notes.left_out(CallsUnchecked(compile=self.compile_id))
        elif self._is_left_to_another_rank():
            self._notes.left_out(CallsShared(compile=self.compile_id))
        else:
            with MORE_CALLS.spending(counts=is_more), ANSWERED_COLLECTIVES.answering():
                self._check_call(arguments, compiled)

    def _search_for(self, failure: Failure, arguments: tuple[Any, ...]) -> None:
        """Search for a failure of the compiler, or for one that was seen in an earlier run."""
        kept = self._kept_call(arguments)
        if kept is not None:
            self._start_search(failure, arguments, FailingCandidate(kept, failure))
            return
        is_small = has_room_for_copies(arguments, self.module) or not self.instructions.investigate
        written = None if is_small else written_inputs(self.module, arguments)
        if written is None:
            self._start_search(failure, arguments)
        else:
            backward = needs_backward(arguments)
            self._search_part(failure, LargeCall(self.module, arguments, written, backward))

    def _may_check_more(self) -> bool:
        """Check whether another call may be checked, which may be the one that fails."""
        is_wanted = self.instructions.calls > 0 and self.instructions.checks_more
        is_one_of_few = self.calls <= self.instructions.calls + _MOST_MORE_CALLS
        return is_wanted and is_one_of_few and MORE_CALLS.allows(self._cost)

    def _check_call(self, arguments: tuple[Any, ...], compiled: Callable[..., Any]) -> None:
        started = time.monotonic()
        try:
            if has_room_for_copies(arguments, self.module):
                self._check_small(arguments, compiled)
            else:
                # If every call is to be checked, they are, however large.
                self._is_large = self.instructions.saves_time and self.instructions.checks_more
                self._check_large(arguments, compiled)
        except Exception as error:
            text = f"the check itself failed: {described(error)}"
            self._notes.checked(self.calls, "skipped", text)
            raise
        self._cost = min(time.monotonic() - started, self._cost_of_next)

    def _is_left_to_another_rank(self) -> bool:
        """Whether this call is checked by another rank, if all call the same graphs.

        The first calls are checked by each, as a fault may exist on one of them alone. In the same
        step, ranks check other graphs, so that none waits long for the others.
        """
        is_shared = self.calls > CALLS_BY_EACH_RANK and self.instructions.saves_time
        if not (is_shared and is_one_of_several_ranks() and calls_only_torch(self.module)):
            return False
        turn = self.calls + self._number - torch.distributed.get_rank()
        return turn % torch.distributed.get_world_size() != 0

    def _check_small(self, arguments: tuple[Any, ...], compiled: Callable[..., Any]) -> None:
        """Check a call on copies; if memory does not suffice for that, without them."""
        try:
            self._check_beside_eager(arguments, compiled)
            return
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            release_frames(error)
        give_back()
        self._check_large(arguments, compiled)

    def _check_beside_eager(self, arguments: tuple[Any, ...], compiled: Callable[..., Any]) -> None:
        if self.outside:
            self._notes.checked(self.calls, OUTSIDE, self.outside)
        inputs = tuple(copy_values(arguments))
        if self.calls == 1 and size_in_bytes(arguments) < _SMALL:
            self.first = self.first or inputs
        # An interpreter runs the graph, because the code that FX generates for it may be wrong.
        case = Case(as_function(self.module), inputs, needs_backward(inputs))
        with self._notes.calling(self.calls):
            if self.instructions.investigate and not can_fork() and program_copy() is not None:
                # The search needs a copy, because after some errors GPU memory is unreadable.
                self._spare = kept_in_main_memory(self._candidate(inputs))
            failure, comparison = self._compare(case, compiled, arguments)
            self._spare = None
        if failure is not None:
            self._start_search(failure, inputs)
        elif comparison is not None:
            for found in self._hidden_failures(case, compiled, comparison):
                self._start_search(found.failure, inputs, found)

    def _compare(
        self, case: Case, compiled: Callable[..., Any], arguments: Sequence[Any]
    ) -> tuple[Failure | None, EagerComparison | None]:
        """Return a call's failure and its comparison; neither if eager fails, too."""
        started = time.monotonic()
        if case.eager_error is not None:
            _raise_lack_of_memory(case.eager_error)
            return self._refused_in_eager(case.eager_error, case, compiled, arguments), None
        SCOPE.emit(EagerReturned(seconds=round(time.monotonic() - started, 3)))
        # The call is tried in a fork first, because a crash would kill the program.
        is_suspect = self._is_worth_a_look and not self.backend and can_fork()
        self._trial = try_call(case, compiled) if is_suspect else CallTrial()
        if self._trial.failure is not None:
            return self._trial.failure, None
        keeps_graph = self.instructions.keeps_graphs
        names = input_names(self.module)
        called = call_beside_eager(case, compiled, names, keeps_graph=keeps_graph)
        if called.refusal is not None:
            self._notes.refused(self.calls, called.refusal)
            return None, None
        if called.error is not None:
            _raise_lack_of_memory(called.error)
            failure = self.failure_at_run(called.error)
            self._stop_if_device_is_lost(failure, called.error)
            return failure, None
        assert called.comparison is not None
        self._notes.took(case.eager.seconds, called.seconds)
        self._notes.differences(self.calls, called.comparison)
        comparison = called.comparison
        # Differences in memory layout that are known to make the program fail.
        counted = self.instructions.counts_of(self.compile_id)
        if counted:
            kinds, places = {n.aspect for n in counted}, {n.where for n in counted}
            comparison = comparison.counting(kinds, places)
        return failure_of_comparison(comparison), comparison

    def _refused_in_eager(
        self, error: Exception, case: Case, compiled: Callable[..., Any], arguments: Sequence[Any]
    ) -> Failure | None:
        """Return the failure of a call that raises in eager, if compiled code does not raise.

        An error of another type is only recorded, as few programs depend on the type.
        """
        is_compared, failure = False, None
        if not has_returned_in_eager():
            is_compared, failure = try_refused_call(error, case, compiled, arguments)
        if failure is None:
            said = f"compiled code raises as eager does: {described(error)}"
            verdict, text = ("right", said) if is_compared else ("eager-fails", described(error))
            self._notes.checked(self.calls, verdict, text)
        elif failure.kind == LOST_CHECK and failure.aspect:
            self._notes.checked(self.calls, OTHER_ERROR, failure.text)
            return None
        else:
            self._trial = CallTrial(wrong_forward=failure)
        return failure

    # --- what a call that seems right may hide ------------------------------------------------

    @property
    def _is_worth_a_look(self) -> bool:
        """Whether to examine a call closely: only the first one, on inputs that are admitted."""
        return self.calls == 1 and not self.outside and self.instructions.investigate

    @property
    def _is_fresh(self) -> bool:
        """Whether the graph was compiled by Inductor in this process, and is worth a look."""
        return self._is_worth_a_look and not self.backend and not self.flow

    def _hidden_failures(
        self, case: Case, compiled: Callable[..., Any], comparison: EagerComparison
    ) -> Iterator[FailingCandidate]:
        """Yield failures of the same graph under other conditions, the cheapest check first."""
        inputs = tuple(case.inputs)
        is_fresh = self._is_fresh
        if is_fresh and self.first is not None and can_fork():
            whole = self.instructions.random_in_whole_graphs
            own = self._candidate(inputs)
            yield from failure_with_inductor_random_numbers(own, always_whole=whole)
        self._notes.compared(self.calls, comparison, self.module)
        if comparison.is_within_rounding and is_fresh:
            fault = hidden_fault(self._candidate(inputs), compiled, self.folder)
            yield from fault.failures if fault else ()
            if fault is not None:
                self._notes.difference(self.calls, "value", fault.kernel, fault.text)
        if not comparison.explained and self.calls == 1 and self._trial.may_differ:
            yield from failure_in_filled_memory(case, compiled, self._candidate(inputs))
        if self.admits is not None and self._is_worth_a_look and can_fork():
            # The package may be wrong only at other sizes that the export admits.
            found = call_at_other_sizes(self.module, compiled, inputs, self.admits)
            if found.called:
                sizes = ", ".join(found.called)
                SCOPE.emit(SizesTried(text=f"graph {self.compile_id}: {sizes}"))
            if found.wrong is not None:
                candidate = self._candidate(found.wrong.inputs)
                failure = found.failure_of(candidate)
                if failure is not None:
                    yield FailingCandidate(candidate, failure, other_size=found.wrong.text)

    # --- a call whose tensors are too large to copy -------------------------------------------

    def _check_large(self, arguments: tuple[Any, ...], compiled: Callable[..., Any]) -> None:
        """Check a call on the program's own tensors; a lack of memory is no failure."""
        size = f"its inputs are {in_mebibytes(size_in_bytes(arguments))}"
        written = written_inputs(self.module, arguments)
        if written is None:
            text = f"{size}, {TOO_LARGE_TO_COPY}, and which of them it writes to is not known"
            self._notes.checked(self.calls, "skipped", text)
            return
        backward = needs_backward(arguments)
        call = LargeCall(self.module, arguments, written, backward, self._known_noise)
        free = what_is_free()
        try:
            if not has_room_in_main_memory(call.kept_bytes):
                raise MemoryError
            self._compare_large(call, compiled)
        except CannotJudge:
            text = f"{size}; values differ, and how far rounding moves them could not be tried"
            self._notes.checked(self.calls, "skipped", text)
        except Exception as error:
            if not is_lack_of_memory(error):
                raise
            kept = in_mebibytes(call.kept_bytes)
            text = f"{size}; eager's results, {kept}, or its own memory did not fit beside them"
            text = f"{text}: {free}"
            self._notes.checked(self.calls, "skipped", text)
        finally:
            give_back()

    def _compare_large(self, call: LargeCall, compiled: Callable[..., Any]) -> None:
        self._kernels = Location()
        with self._notes.calling(self.calls):
            is_scarce = can_fork() and not has_room_in_main_memory(2 * call.most_bytes)
            if is_scarce and death_in_fork(call, as_function(self.module)) is not None:
                text = "eager kills the process, tried in a fork"
                self._notes.checked(self.calls, "eager-fails", text)
                return
            if call.error_in_eager is not None:
                self._notes.checked(self.calls, "eager-fails", described(call.error_in_eager))
                return
            SCOPE.emit(EagerReturned(seconds=round(call.eager.seconds, 3)))
            is_suspect = self._is_worth_a_look and not self.backend and can_fork()
            death = death_in_fork(call, compiled) if is_suspect else None
            if death is not None:
                self._search_part(death, call)

            def before_judging() -> None:
                SCOPE.emit(CompiledReturned())
                if self._is_fresh:
                    self._look_at_kernels(call, compiled)

            called = call.beside_eager(compiled, before_judging)
        if called.refusal is not None:
            self._notes.refused(self.calls, called.refusal)
            return
        if called.error is not None:
            at_run = self.failure_at_run(called.error)
            self._stop_if_device_is_lost(at_run, called.error)
            self._search_part(at_run, call)
        comparison = called.comparison
        if comparison is None:
            return
        # The first check may have compiled a backward pass, and looked closely.
        self._cost_of_next = _RUNS_OF_NEXT * call.eager.seconds
        self._notes.took(call.eager.seconds, called.seconds)
        self._notes.differences(self.calls, comparison)
        failure, how = failure_of_comparison(comparison), call.how
        if failure is not None:
            if not self._is_fresh:
                self._look_at_kernels(call, compiled)
            self._search_part(failure, call)
        elif comparison.is_within_rounding and self._is_fresh and call.is_suspicious:
            self._search_hidden(call)
        if failure is None:
            if self._kernels.right_kernels:
                how += f", {_how_many(self._kernels)}"
            self._notes.compared(self.calls, comparison, self.module, how)

    def _look_at_kernels(self, call: LargeCall, compiled: Callable[..., Any]) -> None:
        """Compare each kernel with eager, where the results differ, whether or not by rounding.

        Rounding may hide a small fault in the results. And to judge these takes longer.
        """
        # Eager has a copy of what compiled code writes to.
        written = [call.arguments[number] for number in call.written]
        if not self._may_search or not has_room_for_copies(written):
            return
        large, location, part = self._large_graph(call), Location(), None
        with passing_over_errors():
            location = large.first_wrong_kernel(compiled)
            part = large.part_around(location)
        self._kernels = location
        if part is not None:
            shown = replace(part.failure, text=location.text, texts=(), where=(), values=())
            self._start_search(shown, part.candidate.inputs, replace(part, failure=shown))
        elif location.kernel:
            self._notes.difference(self.calls, "value", location.kernel, location.text)

    def _search_hidden(self, call: LargeCall) -> None:
        """Search for a fault that rounding explains in the results, in each distinct block."""
        part = None
        with passing_over_errors():
            part = self._large_graph(call).failing_block()
        if part is not None:
            self._start_search(part.failure, part.candidate.inputs, part)

    def _search_part(self, failure: Failure, call: LargeCall) -> None:
        """Search in the first block of a large graph that fails alike, or else in the graph."""
        large, part = self._large_graph(call, failure), None
        if self._may_search:
            with passing_over_errors():
                part = large.failing_block()
        if part is None:
            self._start_search(failure, large.whole.inputs)
            return
        shown = failure
        if failure.kind in OF_VALUES:
            shown = replace(part.failure, text=failure.text, texts=(), where=(), values=())
        self._start_search(shown, part.candidate.inputs, replace(part, failure=shown))

    def _large_graph(self, call: LargeCall, failure: Failure | None = None) -> LargeGraph:
        return LargeGraph(self._candidate(tuple(call.arguments)), call, self.folder, failure)

    # --- to the search ------------------------------------------------------------------------

    @property
    def _may_search(self) -> bool:
        return self.instructions.investigate and not self.outside

    def _start_search(
        self,
        failure: Failure,
        arguments: tuple[Any, ...],
        found: FailingCandidate | None = None,
    ) -> None:
        """Record a failure and have it investigated, which ends the program.

        Returns only if failures are not to be investigated, or the call is `outside`. The candidate
        is the call itself unless another one was found.
        """
        if self.outside:
            self._notes.checked(self.calls, WRONG_OUTSIDE, failure.text)
            return
        self._notes.checked(self.calls, "wrong" if failure.kind != ERROR else "error", failure.text)
        if not self.instructions.investigate:
            self.to_investigate = None
            return
        from inductoscope.inside.doctor import investigation
        from inductoscope.inside.search.shrink import with_outputs_that_count

        noticed = Noticed(
            self.compile_id,
            investigation.describe_own_process(),
            self.backend,
            found.other_size if found else "",
            found.condition if found else "",
            is_kept_call=bool(self.instructions.kept) and found is not None,
        )
        finding = FailureFinding().claimed(noticed).claimed(failure, PROGRAM)
        finding = finding.claimed(Reduction(of=Candidate(self.module, arguments).size))
        if found is not None and found.location is not None:
            finding = finding.claimed(found.location, PROGRAM)
        # The program's own kernels were called with the call itself, not another candidate.
        KEPT_WRAPPERS.called = self.compiled if found is None else None
        if found is not None:
            candidate = found.candidate
        else:
            counted = self.instructions.counts_of(self.compile_id)
            candidate = with_outputs_that_count(self._candidate(arguments), counted)
        candidate = replace(candidate, eager_raises=bool(failure.eager_error))
        investigation.investigate_and_stop(candidate, finding, self.folder, self.instructions)

    def _stop_if_device_is_lost(self, failure: Failure, error: BaseException) -> None:
        """Stop at once, since freeing a tensor on a lost device kills the process."""
        from inductoscope.inside.doctor import investigation

        if not self.instructions.investigate or not investigation.is_device_lost():
            return
        self._notes.checked(self.calls, "error", failure.text)
        noticed = Noticed(self.compile_id, investigation.describe_own_process())
        finding = investigation.found_in_error(noticed, failure, self.module, error)
        if self._spare is None:
            investigation.stop_with(finding)
        investigation.investigate_and_stop(self._spare, finding, self.folder, self.instructions)

    def _kept_call(self, arguments: tuple[Any, ...]) -> Candidate | None:
        if not self.instructions.kept or not self.instructions.investigate:
            return None
        from inductoscope.inside.doctor.kept_call import call_to_investigate

        return call_to_investigate(self._candidate(arguments), self.instructions, self.folder)

    def _candidate(self, arguments: tuple[Any, ...]) -> Candidate:
        has_sizes = any(type(value) is int for value in arguments)
        # A failure ends the program, so that large inputs need no copies: nobody changes them.
        is_small = has_room_for_copies(arguments, self.module)
        return Candidate(
            # The copy is new, as Dynamo skips code that was created while it was compiling.
            snapshot(self.module),
            tuple(copy_values(arguments)) if is_small else arguments,
            backward=needs_backward(arguments) and self._trial.wrong_forward is None,
            dynamic=True if self.dynamic is None and has_sizes else self.dynamic,
            options=self.options,
            config=without_setting(inductor_settings()),
            marks=self.marks,
            earlier=self.first if self.calls > 1 or self.flow else None,
            counts=tuple({note.aspect for note in self.instructions.counts_of(self.compile_id)}),
            flow=self.flow,
            constants=self.constants,
        )


def _how_many(kernels: Location) -> str:
    calls = f"{count_of(kernels.right_kernels, 'kernel call')} checked individually"
    like = kernels.like_equal_kernel
    return f"{calls}, {like} of their values by the rounding of an equal kernel" if like else calls


def _raise_lack_of_memory(error: Exception) -> None:
    """Raise an error which says that copies did not fit: it says nothing about the call."""
    if is_lack_of_memory(error):
        raise error


def _from(origin: Mapping[str, Any], failure: Failure) -> Failure:
    """Add the stage that raised the failure, and the stage's details."""
    return replace(failure, stage=origin.get("stage", ""), detail=origin.get("detail") or "")


# --- events about the calls of one compiled graph -------------------------------------------------


class CallNotes:
    """A writer of events about calls, with each difference in memory layout only once."""

    def __init__(self, compile_id: str) -> None:
        self._compile = compile_id
        self._noted: set[tuple[str, str]] = set()
        self._left_out: set[str] = set()
        # Seconds in eager and compiled of the call that is being checked.
        self._took = (0.0, 0.0)

    def left_out(self, said: CallsUnchecked | CallsShared) -> None:
        """Record once that calls are not checked, or not here."""
        if said.kind not in self._left_out:
            self._left_out.add(said.kind)
            SCOPE.emit(said)

    def took(self, eager: float, compiled: float) -> None:
        """Set the seconds of the call that is being checked."""
        self._took = (round(eager, 7), round(compiled, 7))

    def checked(self, call: int, verdict: str, text: str, *, is_exact: bool | None = None) -> None:
        (eager, compiled), self._took = self._took, (0.0, 0.0)
        event = Check(
            compile=self._compile,
            call=call,
            verdict=verdict,
            text=text,
            is_exact=is_exact,
            eager=eager,
            compiled=compiled,
        )
        SCOPE.emit(event)

    def refused(self, call: int, refusal: Refusal) -> None:
        """Record that torch's NaN check has refused the program's own NaN."""
        self.checked(call, NAN_REFUSED if refusal.is_certain else NAN_LIKELY, refusal.text)

    def compared(
        self, call: int, comparison: EagerComparison, module: GraphModule, how: str = ""
    ) -> None:
        """Record a call that is not wrong: right, within rounding, or unsteady in eager."""
        how += f"; {ANSWERED}" if ANSWERED_COLLECTIVES.count else ""
        if not comparison.explained:
            exact = "" if comparison.is_exact else ", not equal to the last bit"
            text = f"{comparison.values} values{exact}{how}"
            self.checked(call, "right", text, is_exact=comparison.is_exact)
            return
        texts = "; ".join(item.text for item in comparison.explained[:4]) + how
        if comparison.is_within_rounding:
            outputs = (i for i in comparison.explained if i.where.startswith("output "))
            note_rounding(max((item.largest for item in outputs), default=0.0))
            self.checked(call, "within-rounding", texts)
        else:
            empty = uninitialised_allocation(module)
            read = f"; the graph reads uninitialised memory ({empty})" if empty else ""
            self.checked(call, "unsteady", f"{comparison.reason}: {texts}{read}")

    @contextlib.contextmanager
    def calling(self, call: int) -> Iterator[None]:
        """Record the call around the block; if the process dies in it, its end is missing."""
        SCOPE.emit(GraphCall(compile=self._compile, call=call))
        try:
            yield
        finally:
            SCOPE.emit(GraphReturned(compile=self._compile, call=call))

    def differences(self, call: int, comparison: EagerComparison) -> None:
        """Record differences in memory layout from eager, once for each result."""
        for item in comparison.noted:
            if (item.kind, item.where) not in self._noted:
                self._noted.add((item.kind, item.where))
                self.difference(call, item.kind, item.where, item.text)

    def difference(self, call: int, aspect: str, where: str, text: str) -> None:
        """Record a difference in layout, or a kernel that differs where the results do not."""
        event = NotedDifference(
            compile=self._compile, call=call, aspect=aspect, where=where, text=text
        )
        SCOPE.emit(event)
