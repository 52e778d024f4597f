"""A compiled graph whose first calls also run in eager and are compared.

A failure is handled when the graph is called: then the inputs are real, no compile is going on, and
the process can be forked to investigate. So an exception of the compiler is held back until then.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.failure import ERROR, Failure
from inductoscope.doctor.finding import PROGRAM, FailureFinding, Noticed
from inductoscope.doctor.instructions import MOVED, Instructions
from inductoscope.inside.compare.beside_eager import call_beside_eager
from inductoscope.inside.compare.bug_or_rounding import UNINITIALISED, UNREPEATABLE, EagerComparison
from inductoscope.inside.compare.eager_layout import call_as_in_eager
from inductoscope.inside.compare.graphs import (
    as_function,
    input_names,
    reading_of_unwritten_memory,
    snapshot,
)
from inductoscope.inside.compare.kernels import KEPT
from inductoscope.inside.compare.reference import Case, with_perturbed_rounding
from inductoscope.inside.compare.values import copy_values, needs_backward, size_in_bytes
from inductoscope.inside.doctor.compile_conditions import (
    has_room_for_copies,
    how_compiled,
    is_compilers_own,
    is_traced,
    no_cuda_graphs,
    without_setting,
)
from inductoscope.inside.doctor.further_checks import CallTrial, try_call
from inductoscope.inside.observe import current_compile_id, record_error
from inductoscope.inside.program_settings import MarkedSize, backend_of
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate, marked_sizes
from inductoscope.inside.search.failure_signature import (
    failure_of_comparison,
    failure_of_error,
    stage_at_run,
)
from inductoscope.inside.search.forks import can_fork, can_fork_alone
from inductoscope.inside.search.placement import kept_in_main_memory
from inductoscope.inside.search.program_state import inductor_settings
from inductoscope.recording.events import (
    NAN_LIKELY,
    NAN_REFUSED,
    OUTSIDE,
    WRONG_OUTSIDE,
    CallChecked,
    CallsUnchecked,
    DifferenceNoted,
    EagerReturned,
    GraphCall,
    GraphReturned,
    SizesTried,
)
from inductoscope.torch_facts.stages import JUST_IN_TIME

_SMALL = 64 << 20


@dataclass
class CheckedGraph:
    """A graph, what it was compiled to, and how its calls are checked."""

    module: GraphModule
    compile_id: str
    instructions: Instructions
    place: Path
    options: dict[str, Any]
    dynamic: bool | None
    # Its name, if it is not Inductor.
    backend: str
    compiled: Callable[..., Any] | None = None
    held_back: Failure | None = None
    error: BaseException | None = None
    calls: int = 0
    # Inputs of the first call, for which the graph was compiled, and what was said of their sizes.
    first: tuple[Any, ...] | None = None
    marks: tuple[MarkedSize, ...] = ()
    # How it reached Inductor, and which inputs a package keeps to itself.
    flow: str = JUST_IN_TIME
    constants: frozenset[str] = frozenset()
    # What the inputs of a call break of what it was compiled for: then it may do anything.
    outside: str = ""
    # Whether a package takes inputs of other sizes; None if no others are tried.
    admits: Callable[[Sequence[Any]], bool] | None = None
    _checking: list[bool] = field(default_factory=list)
    # The call being checked, in main memory, and what it did in a fork.
    _spare: Candidate | None = None
    _trial: CallTrial = field(default_factory=CallTrial)

    def __post_init__(self) -> None:
        self._notes = CallNotes(self.compile_id)

    def hold_back(self, error: BaseException) -> None:
        """Keep an exception of the compiler until the graph is called."""
        origin = SCOPE.failure_of(error) or {}
        SCOPE.guard(record_error, error, self.compile_id, origin)
        self.held_back = replace(
            failure_of_error(error),
            stage=origin.get("stage", ""),
            detail=origin.get("detail") or "",
        )
        self.error = error

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
        if self._checking or is_traced(arguments):
            return
        self._checking.append(True)
        try:
            SCOPE.guard(self._check, arguments)
        finally:
            self._checking.pop()
            KEPT.let_go()

    def _check(self, arguments: tuple[Any, ...]) -> None:
        if self.calls == 0 and not self.flow:
            self.marks = marked_sizes(self.module, arguments)
        if self.held_back is not None:
            self._found(self.held_back, arguments, self._kept_call(arguments))
            return
        if self.compiled is None:
            return
        self.calls += 1
        if self.calls > self.instructions.calls:
            self._notes.unchecked(is_first=self.calls == self.instructions.calls + 1)
            return
        needed = size_in_bytes(arguments)
        if not has_room_for_copies(arguments):
            self._check_large(arguments, needed)
            return
        if self.outside:
            self._notes.checked(self.calls, OUTSIDE, self.outside)
        SCOPE.emit(GraphCall(compile=self.compile_id, call=self.calls))
        kept = copy_values(arguments)
        if self.calls == 1 and needed < _SMALL:
            self.first = self.first or tuple(kept)
        self._keep_in_main_memory(tuple(kept))
        try:
            # Run by an interpreter, because the code that FX generates for a graph may be wrong.
            case = Case(as_function(self.module), kept, needs_backward(kept))
            failure, comparison = self._compare(case)
        finally:
            SCOPE.emit(GraphReturned(compile=self.compile_id, call=self.calls))
            self._spare = None
        if failure is not None:
            self._found(failure, tuple(kept))
            return
        self._check_inductor_random_numbers(tuple(kept))
        if comparison is not None:
            self._note_comparison(comparison, tuple(kept))
            if not comparison.explained:
                self._check_in_filled_memory(case, tuple(kept))
            self._check_at_other_sizes(tuple(kept))

    def _check_at_other_sizes(self, arguments: tuple[Any, ...]) -> None:
        """What is right at the program's sizes may be wrong at others that the export admits."""
        is_suspect = not self.outside and self.instructions.investigate
        if self.calls > 1 or self.admits is None or not is_suspect or not can_fork_alone():
            return
        from inductoscope.inside.search.other_sizes import call_at_other_sizes

        assert self.compiled is not None
        found = call_at_other_sizes(self.module, self.compiled, arguments, self.admits)
        if found.called:
            SCOPE.emit(SizesTried(text=f"graph {self.compile_id}: {found.text}"))
        candidate = None if found.wrong is None else self._candidate(found.wrong.inputs)
        failure = found.failure_of(candidate)
        if candidate is not None and found.wrong is not None and failure is not None:
            self._found(failure, candidate.inputs, candidate, found.wrong.text)

    def _check_in_filled_memory(self, case: Case, arguments: tuple[Any, ...]) -> None:
        """What is right may be right only by chance."""
        if self.calls > 1 or not self._trial.may_differ_in_filled_memory or self.compiled is None:
            return
        from inductoscope.inside.doctor.further_checks import failure_in_filled_memory

        own = self._candidate(arguments)
        candidate, failure = failure_in_filled_memory(case, self.compiled, own)
        if failure is not None:
            self._found(failure, arguments, candidate)

    def _try_in_fork(self, case: Case) -> CallTrial:
        """The first call, in a fork: what kills that would kill the program."""
        is_suspect = not self.backend and not self.outside and self.instructions.investigate
        if self.calls > 1 or self.compiled is None or not is_suspect or not can_fork_alone():
            return CallTrial()
        return try_call(case, self.compiled)

    def _keep_in_main_memory(self, arguments: tuple[Any, ...]) -> None:
        """After some errors nothing on a GPU can be read any more."""
        if can_fork() or not self.instructions.investigate:
            return
        from inductoscope.inside.doctor.program_copy import program_copy

        if program_copy() is not None:
            self._spare = kept_in_main_memory(self._candidate(arguments))

    def _check_inductor_random_numbers(self, arguments: tuple[Any, ...]) -> None:
        if self.calls > 1 or self.first is None or not self._is_watchable or not can_fork():
            return
        from inductoscope.inside.doctor import further_checks as numbers

        whole = self.instructions.random_in_whole_graphs
        own = self._candidate(arguments)
        candidate, failure = numbers.failure_with_inductor_random_numbers(own, always_whole=whole)
        if failure is not None:
            self._found(failure, arguments, candidate)

    def _check_large(self, arguments: tuple[Any, ...], needed: int) -> None:
        """Check inputs that do not fit into memory twice: in a fork, without copies."""
        size = f"its inputs are {needed >> 20} MiB, too large to copy"
        if not can_fork():
            self._notes.checked(self.calls, "skipped", size)
            return
        from inductoscope.inside.doctor.further_checks import compared, smaller_failure

        said = compared(self.module, self.compiled, arguments)
        if said == "":
            text = f"{size}; only outputs were compared; they are close to eager"
            self._notes.checked(self.calls, "right", text)
            return
        candidate = self._candidate(arguments, is_large=True)
        smaller, failure = smaller_failure(candidate)
        if failure is None:
            self._notes.checked(self.calls, "skipped", f"{size}; {said}")
        else:
            self._found(failure, smaller.inputs, smaller)

    def _compare(self, case: Case) -> tuple[Failure | None, EagerComparison | None]:
        started = time.monotonic()
        error = case.eager_error
        if error is not None:
            self._notes.checked(self.calls, "eager-fails", f"{type(error).__name__}: {error}"[:500])
            return None, None
        SCOPE.emit(EagerReturned(seconds=round(time.monotonic() - started, 3)))
        assert self.compiled is not None
        self._trial = self._try_in_fork(case)
        if self._trial.failure is not None:
            return self._trial.failure, None
        keeps_graph = self.instructions.keeps_graphs
        names = input_names(self.module)
        called = call_beside_eager(case, self.compiled, names, keeps_graph=keeps_graph)
        if called.refusal is not None:
            verdict = NAN_REFUSED if called.refusal.is_certain else NAN_LIKELY
            self._notes.checked(self.calls, verdict, called.refusal.text)
            return None, None
        comparison = called.comparison
        if comparison is None:
            assert called.error is not None
            failure = self.failure_at_run(called.error)
            self._stop_if_device_is_lost(failure, called.error)
            return failure, None
        self._notes.took(case.eager.seconds, called.seconds)
        self._notes.differences(self.calls, comparison)
        counted = self.instructions.counts_of(self.compile_id)
        if counted:
            kinds, where = {note.aspect for note in counted}, {note.where for note in counted}
            comparison = comparison.counting(kinds, where)
        return failure_of_comparison(comparison), comparison

    def _stop_if_device_is_lost(self, failure: Failure, error: BaseException) -> None:
        """At once: freeing any tensor on a lost device kills the process."""
        from inductoscope.inside.doctor.ending_program import found_in_error, is_device_lost

        if not self.instructions.investigate or not is_device_lost():
            return
        from inductoscope.inside.doctor.ending_program import (
            describe_own_process,
            investigate_and_stop,
            stop_with,
        )

        self._notes.checked(self.calls, "error", failure.text)
        noticed = Noticed(self.compile_id, describe_own_process())
        finding = found_in_error(noticed, failure, self.module, error)
        if self._spare is None:
            stop_with(finding)
        investigate_and_stop(self._spare, finding, self.place, self.instructions)

    def failure_at_run(self, error: BaseException) -> Failure:
        """The backward graph is compiled only when it is first needed, and may fail then."""
        origin = SCOPE.failure_of(error) or {}
        failure = failure_of_error(error)
        return replace(
            failure,
            stage=origin.get("stage") or stage_at_run(failure),
            detail=origin.get("detail") or "",
        )

    def _note_comparison(self, comparison: EagerComparison, arguments: tuple[Any, ...]) -> None:
        if not comparison.explained:
            exact = "" if comparison.is_exact else ", not equal to the last bit"
            text = f"{comparison.values} values{exact}"
            self._notes.checked(self.calls, "right", text, is_exact=comparison.is_exact)
            return
        texts = "; ".join(item.text for item in comparison.explained[:4])
        if comparison.reason in (UNINITIALISED, UNREPEATABLE):
            why = f"{texts}{reading_of_unwritten_memory(self.module)}"
            self._notes.checked(self.calls, "unsteady", f"{comparison.reason}: {why}")
            return
        self._notes.checked(self.calls, "within-rounding", texts)
        if self.calls == 1 and self._is_watchable:
            # Rounding upstream may hide an operation that is wrong on its own.
            self._look_closer(arguments)

    @property
    def _is_watchable(self) -> bool:
        """Whether to look closer at a call that seems right: Inductor just compiled it here."""
        return self.instructions.investigate and not self.backend and not self.flow

    def _look_closer(self, arguments: tuple[Any, ...]) -> None:
        from inductoscope.inside.doctor.further_checks import wrong_kernel

        assert self.compiled is not None
        found = wrong_kernel(self._candidate(arguments), self.compiled, self.place)
        if found is None:
            return
        if found.failure is not None:
            self._found(found.failure, arguments, found.part)
        else:
            self._notes.difference(self.calls, "value", found.kernel, found.text)

    def _found(
        self,
        failure: Failure,
        arguments: tuple[Any, ...],
        candidate: Candidate | None = None,
        other_size: str = "",
    ) -> None:
        if self.outside:
            self._notes.checked(self.calls, WRONG_OUTSIDE, failure.text)
            return
        self._notes.checked(self.calls, "wrong" if failure.kind != ERROR else "error", failure.text)
        if not self.instructions.investigate:
            self.held_back = None
            return
        from inductoscope.inside.doctor import ending_program
        from inductoscope.inside.search.shrink_passes import with_outputs_that_count

        noticed = Noticed(
            self.compile_id,
            ending_program.describe_own_process(),
            self.backend,
            other_size,
            is_kept_call=bool(self.instructions.kept) and candidate is not None,
        )
        finding = FailureFinding().claimed(noticed).claimed(failure, PROGRAM)
        # Another candidate is not what the program's own kernels were called with.
        KEPT.called = self.compiled if candidate is None else None
        counted = self.instructions.counts_of(self.compile_id)
        candidate = candidate or with_outputs_that_count(self._candidate(arguments), counted)
        ending_program.investigate_and_stop(candidate, finding, self.place, self.instructions)

    def _kept_call(self, arguments: tuple[Any, ...]) -> Candidate | None:
        if not self.instructions.kept or not self.instructions.investigate:
            return None
        from inductoscope.inside.doctor.kept_call import call_to_investigate

        return call_to_investigate(self._candidate(arguments), self.instructions, self.place)

    def _candidate(self, arguments: tuple[Any, ...], *, is_large: bool = False) -> Candidate:
        has_sizes = any(type(value) is int for value in arguments)
        dynamic = True if self.dynamic is None and has_sizes else self.dynamic
        return Candidate(
            # A new copy: Dynamo skips code that was created while it was compiling.
            snapshot(self.module),
            arguments if is_large else tuple(copy_values(arguments)),
            backward=needs_backward(arguments) and self._trial.wrong_forward is None,
            dynamic=dynamic,
            options=self.options,
            config=without_setting(inductor_settings()),
            marks=self.marks,
            earlier=self.first if self.calls > 1 or self.flow else None,
            counts=tuple({note.aspect for note in self.instructions.counts_of(self.compile_id)}),
            flow=self.flow,
            constants=self.constants,
        )


# --- What is written down about the calls of one compiled graph -----------------------------------


class CallNotes:
    """Writes events about calls, each difference in memory once."""

    def __init__(self, compile_id: str) -> None:
        self._compile = compile_id
        self._noted: set[tuple[str, str]] = set()
        # Seconds in eager and compiled of the call that is being checked.
        self._took = (0.0, 0.0)

    def took(self, eager: float, compiled: float) -> None:
        """How long the call took that is being checked."""
        self._took = (round(eager, 7), round(compiled, 7))

    def checked(self, call: int, verdict: str, text: str, *, is_exact: bool | None = None) -> None:
        """What came of comparing a call with eager."""
        eager, compiled = self._took
        self._took = (0.0, 0.0)
        event = CallChecked(
            compile=self._compile,
            call=call,
            verdict=verdict,
            text=text,
            is_exact=is_exact,
            eager=eager,
            compiled=compiled,
        )
        SCOPE.emit(event)

    def unchecked(self, *, is_first: bool) -> None:
        """A call is not compared any more; that is said once."""
        if is_first:
            SCOPE.emit(CallsUnchecked(compile=self._compile))

    @contextlib.contextmanager
    def taking_views(self, call: int, text: str) -> Iterator[None]:
        """In the block torch takes constants for this call that it may take wrongly."""
        self.checked(call, OUTSIDE, text)
        SCOPE.emit(GraphCall(compile=self._compile, call=call))
        try:
            yield
        finally:
            SCOPE.emit(GraphReturned(compile=self._compile, call=call))

    def differences(self, call: int, comparison: EagerComparison) -> None:
        """Note what lies otherwise in memory than in eager, once for each result."""
        for item in comparison.noted:
            if (item.kind, item.where) not in self._noted:
                self._noted.add((item.kind, item.where))
                self.difference(call, item.kind, item.where, item.text)

    def difference(self, call: int, aspect: str, where: str, text: str) -> None:
        """Note one of them, or a kernel that differs though the results do not."""
        event = DifferenceNoted(
            compile=self._compile, call=call, aspect=aspect, where=where, text=text
        )
        SCOPE.emit(event)


# --------------------------------------------------------------------------------------------------
# Compiles a graph as the program wants it, or as the instructions say, and has calls checked.


def compile_checked_graph(
    original: Callable[..., Any],
    instructions: Instructions,
    place: Path,
    output: Any,
    module: GraphModule,
    examples: Any,
) -> Callable[..., Any]:
    """What replaces the compiled graph."""
    compile_id = current_compile_id() or "?"
    graph = CheckedGraph(snapshot(module), compile_id, instructions, place, *how_compiled(output))
    stand_in: Callable[..., Any] = graph.module
    if instructions.backend == MOVED:
        return with_perturbed_rounding(stand_in)
    if instructions.backend and instructions.backend != "eager":
        stand_in = torch._dynamo.lookup_backend(instructions.backend)(module, examples)
    if instructions.backend:
        return stand_in
    if instructions.stop_at == compile_id:
        graph.held_back = instructions.failure
        return graph
    is_checked = instructions.calls > 0
    without = no_cuda_graphs(backend_of(output)) if is_checked else contextlib.nullcontext()
    try:
        with without:
            graph.compiled = original(output, module, examples)
    except Exception as error:
        if not is_compilers_own(error):
            raise
        graph.hold_back(error)
    return graph
