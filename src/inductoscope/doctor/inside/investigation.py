"""From a failure to its cause, the smallest graph that shows it, and a workaround.

Runs inside the program's process, which waits meanwhile; everything is tried in forks of it. The
findings are written after every step, so that an interruption loses one step.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from inductoscope.doctor.failure import (
    ERROR,
    HANG,
    NAN,
    SIGNAL,
    WRONG,
    Failure,
    advice_on_machine,
)
from inductoscope.doctor.handover import Found, say, write_found
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.location import Location
from inductoscope.doctor.repro.failure_script import expected_output, script_text, title_of
from inductoscope.doctor.repro.own_passes import own_passes_text
from inductoscope.doctor.repro.replaced_functions import check_tuned_operators, replaced_parts_text
from inductoscope.doctor.search.axes import AXES
from inductoscope.doctor.search.candidate import Candidate, has_transforms, name_of
from inductoscope.doctor.search.compiler_imports import import_compiler, prepare_passes
from inductoscope.doctor.search.error_location import locate_error
from inductoscope.doctor.search.first_wrong_kernel import guilty_in_program
from inductoscope.doctor.search.forks import Forks, can_fork
from inductoscope.doctor.search.hang_limits import HangPatience
from inductoscope.doctor.search.healthy_candidate import healthy_candidate
from inductoscope.doctor.search.memory_evidence import may_depend_on_memory, memory_evidence
from inductoscope.doctor.search.needed_state import needed_state, repeatable
from inductoscope.doctor.search.oracle import Oracle
from inductoscope.doctor.search.plain_compile import compiled_like, compiled_plainly, special_flow
from inductoscope.doctor.search.replaced_parts import replaced_parts
from inductoscope.doctor.search.shrink import PASSES_AROUND_GRAPH, SHRINK_PASSES
from inductoscope.doctor.search.shrink.engine import shrink
from inductoscope.doctor.search.shrink.inputs import with_exact_inputs
from inductoscope.doctor.search.shrink.shrink_pass import Subject
from inductoscope.doctor.search.subgraph import record_values
from inductoscope.doctor.search.suppressing_axes import find_suppressing_axes, relevant_axes
from inductoscope.doctor.search.suspects import nodes_wrong_alone
from inductoscope.doctor.search.wrong_result_location import (
    aten_operations,
    locate_wrong_result,
    source_lines,
)
from inductoscope.doctor.workarounds.trials import try_workarounds
from inductoscope.errors import ToolFailure
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.flows import PLAIN

# The longest that a candidate which does not hang may take, to begin with and for each node.
_FORK_SECONDS, _FORK_SECONDS_PER_NODE = 120.0, 1.0
# How long to shrink the graph; a candidate that hangs costs more than one that does not.
_SHRINK_SECONDS, _SHRINK_SECONDS_HANG = 900.0, 90.0


@dataclass(frozen=True)
class _Way:
    """A candidate that may show the failure, and what to say while it is tried."""

    text: str
    candidate: Candidate


class Investigation:
    """One failure, step by step."""

    def __init__(
        self,
        candidate: Candidate,
        failure: Failure,
        found: Found,
        place: Path,
        instructions: Instructions,
    ) -> None:
        self._whole = candidate
        self._failure = failure
        self._found = found
        self._place = place
        self._is_native = failure.stage in (
            stages.CPP_COMPILE,
            stages.TRITON_COMPILE,
            stages.WRAPPER,
            stages.RUNTIME,
        )
        self._stall = instructions.stall
        self._with_workaround = instructions.with_workaround
        self._oracle = Oracle(
            Forks(seconds=self._longest(), uses_gpu=bool(candidate.device)),
            Path(instructions.journal),
            watch_kernels=failure.kind == SIGNAL or _is_in_kernel(failure),
        )
        self._patience = HangPatience(failure.stage)
        if failure.kind == HANG:
            self._oracle.forks.patience = self._patience
        self._smallest = candidate
        self._location = Location()
        # How the program itself reaches Inductor, and its graph on that way.
        self._flow = found.flow = special_flow(candidate)
        self._own = replace(candidate, earlier=None)

    def run(self) -> None:
        """All steps."""
        self._found.advice = advice_on_machine(self._failure)
        self._found.sources = source_lines(self._whole)
        # Where there are no forks, it would hang or die here too.
        hangs_here = self._failure.kind in (HANG, SIGNAL) and not can_fork()
        if self._found.advice or self._found.backend or hangs_here:
            self._found.is_complete = True
            return
        import_compiler()
        if not self._whole.device:
            prepare_passes(self._failure.stage)
        self._found.nodes_before = self._whole.size
        self._found.functions = list(self._failure.functions)
        self._reproduce()
        if not self._found.reproduces:
            self._found.is_complete = True
            return
        self._name_kernel()
        self._shrink(self._locate_roughly())
        self._locate()
        self._write_script()
        self._find_suppressing_axes()
        if self._with_workaround:
            self._find_workarounds()
        self._found.is_complete = True
        self._save()

    def _longest(self) -> float:
        """Seconds that a fork may take: a large graph may be slow, a small one is not."""
        if self._failure.kind != HANG:
            return _FORK_SECONDS + _FORK_SECONDS_PER_NODE * self._whole.size
        return self._stall  # One that hangs is ended long before: see `hang_limits`.

    def _say(self, text: str) -> None:
        say(self._place, text)

    def _save(self) -> None:
        self._found.candidates_tried = self._oracle.forks.count
        self._found.notes = self._oracle.mistakes[:3]
        write_found(self._found, self._place)

    # --- steps --------------------------------------------------------------------------------

    def _reproduce(self) -> None:
        """The failure must show in a fork before the search starts."""
        again = None
        for way in self._ways_to_show_it():
            self._say(way.text)
            again = self._tried(way.candidate)
            self._found.reproduces = again is not None and _is_again(again, self._failure)
            if self._found.reproduces:
                self._whole = way.candidate
                # What was right in other memory was right by chance.
                self._found.is_right_with_torch_compile &= not way.candidate.guarded
                break
            if self._flow and not special_flow(way.candidate):
                could_not_be_tried = self._oracle.mistakes or self._oracle.eager_error
                self._found.is_right_with_torch_compile = again is None and not could_not_be_tried
        if not self._found.reproduces:
            self._found.alone = self._said_alone(again).partition("\n")[0][:300]
        if again is not None and self._found.reproduces:
            self._failure = self._found.first_failure = again
            self._patience.stage = again.stage
            if again.kind in (ERROR, HANG) and not self._whole.backward:
                self._oracle.stage = again.stage  # "" or runtime for all that is not a compile.
            self._found.failure = self._found.failure.updated_with(again)
        self._save()

    def _tried(self, candidate: Candidate) -> Failure | None:
        """The failure of a candidate; a healthy one beside it shows what its compiler takes."""
        healthy = healthy_candidate(candidate) if self._is_native else None
        beside = [healthy] if self._failure.kind == HANG and healthy is not None else []
        return next(self._oracle.failures([candidate, *beside]))

    def _name_kernel(self) -> None:
        """The guilty kernel by its name in the program; the smallest graph has other ones."""
        if not self._flow or self._failure.stage not in ("", stages.RUNTIME):
            return
        self._say("comparing every kernel of the program with eager")
        found = self._found.in_program = guilty_in_program(self._own, self._oracle.forks)
        self._location = self._found.location = found
        self._save()
        if found.kernel or found.operation:
            kind = "kernel" if found.kernel else "operator"
            self._say(f"the guilty {kind} is {found.kernel or found.operation}: {found.text}")

    def _ways_to_show_it(self) -> Iterator[_Way]:
        """The candidate as it may fail alone, the cheapest to try first."""
        alone = replace(self._whole, earlier=None)
        if self._flow:
            text = f"trying the same graph with {PLAIN[self._flow]} ({alone.size} nodes)"
            yield _Way(text, compiled_plainly(alone))
            yield _Way(f"reproducing it with {self._flow} in a fork", alone)
        else:
            yield _Way(f"reproducing it in a fork ({alone.size} nodes)", alone)
        if self._whole.earlier is not None:
            yield _Way("it may need an earlier call; trying with that call", self._whole)
        if may_depend_on_memory(self._whole, self._failure):
            text = "it may depend on what lies in memory; trying with NaN around every buffer"
            yield _Way(text, replace(compiled_plainly(alone), guarded=True))

    def _said_alone(self, again: Failure | None) -> str:
        if again is not None:
            return again.text
        if self._oracle.mistakes:
            return "it could not be tried"
        return self._oracle.eager_error or "it is right"

    def _locate_roughly(self) -> list[Sequence[str]]:
        """Suspected nodes in the whole graph, for a wrong result."""
        if self._failure.kind not in (WRONG, NAN):
            names = [node.name for node in self._whole.operations]
            suspects = [name for name in names if name == self._failure.detail]
            return [tuple(suspects)] if suspects else []
        self._say("comparing every pass, decomposition and kernel with eager")
        self._location = locate_wrong_result(self._whole, self._oracle.forks, self._failure.aspect)
        self._found.location = self._found.in_whole_graph = self._location
        self._save()
        located = [self._location.suspects] if self._location.suspects else []
        return [*self._wrong_alone(), *located]

    def _shrink(self, suspects: Sequence[Sequence[str]]) -> None:
        longest = _SHRINK_SECONDS_HANG if self._failure.kind == HANG else _SHRINK_SECONDS
        self._oracle.deadline = time.monotonic() + longest
        subject = Subject(self._whole, self._failure, suspects)
        # A trial that hangs takes longer than one that fails.
        at_once = PASSES_AROUND_GRAPH if self._failure.kind == HANG else ()
        for progress in shrink(subject, self._oracle, SHRINK_PASSES, at_once):
            self._keep(progress.candidate)
            if progress.text:
                self._say(progress.text)

    def _wrong_alone(self) -> list[list[str]]:
        """Nodes that are wrong on their own."""
        if self._whole.counts:
            # Many operations lay out results differently on their own; only the outputs count.
            outputs = self._whole.module.graph.output_node()
            return [[node.name for node in outputs.all_input_nodes]]
        if has_transforms(self._whole) or self._whole.earlier is not None:
            return []
        try:
            return nodes_wrong_alone(record_values(self._whole), self._oracle)
        except Exception:  # They are only a hint.
            self._oracle.mistakes.append(traceback.format_exc()[-3000:])
            return []

    def _keep(self, candidate: Candidate) -> Candidate:
        self._smallest = candidate
        self._found.nodes = candidate.size
        self._found.operations = aten_operations(candidate)
        self._found.calls = [name_of(node) for node in candidate.operations]
        self._found.sources = source_lines(candidate)
        self._save()
        return candidate

    def _locate(self) -> None:
        """Locate the failure in the smallest graph, where little is left to be wrong."""
        self._oracle.deadline = math.inf
        self._oracle.stage = ""
        with self._patience.to_be_sure():
            final = self._oracle.failure(self._smallest, label=" in full")
        if final is None or not final.is_same_as(self._failure):
            # A slow candidate was mistaken for a hang, or it fails intermittently.
            self._keep(with_exact_inputs(self._whole))
        else:
            self._found.failure = self._found.failure.updated_with(final)
            self._failure = final
        if self._failure.kind in (WRONG, NAN):
            self._say("locating it in the smallest graph")
            smallest = locate_wrong_result(
                self._smallest, self._oracle.forks, self._failure.aspect, closely=True
            )
            if smallest.is_known or smallest.operation:
                self._location = smallest
        else:
            self._location = locate_error(self._smallest, self._failure, self._oracle.forks)
        if self._found.is_right_with_torch_compile and not self._location.is_known:
            how = _ONLY_IN_PACKAGE if self._location.kernel else ""
            self._location = replace(self._location, stage=stages.WRAPPER, how=how)
        self._found.location = self._location
        self._found.functions = list(self._failure.functions)
        named = [self._location.operation, *self._location.names]
        self._found.replaced = replaced_parts([*named, *self._found.operations])
        self._look_at_memory()
        self._save()

    def _look_at_memory(self) -> None:
        """Whether it reads what is not its own; the script then fails in such memory alone."""
        evidence = memory_evidence(self._smallest, self._failure, self._oracle.forks, self._place)
        self._found.device_evidence = list(evidence.texts)
        if evidence.fault is None:
            return
        guarded = replace(compiled_plainly(self._smallest), guarded=True)
        again = self._oracle.failure(guarded, label=" in full")
        if again is None or not again.is_same_as(self._failure):
            return  # It may have another cause as well.
        self._found.memory_fault = evidence.fault.text
        kernel = evidence.fault.kernel or self._location.kernel
        self._found.location = self._location = replace(self._location, kernel=kernel)
        self._smallest = guarded

    def _write_script(self) -> None:
        try:
            if not all([*self._smallest.recipes, *self._smallest.earlier_recipes]):
                raise ToolFailure("a script cannot hold an input of this size or type")
            if self._location.stage == stages.AUTOTUNE:
                check_tuned_operators(self._smallest.module)
            passes = own_passes_text() if self._location.own_pass else ""
            replaced, self._found.not_held = replaced_parts_text(self._found.replaced)
            candidate = self._as_in_program(repeatable(self._smallest, self._oracle.forks))
            title = title_of(self._failure, candidate.flow, self._found.operations)
            self._found.script = script_text(
                candidate,
                self._failure,
                title,
                state=needed_state(candidate, self._failure, self._oracle),
                own_passes="\n\n\n".join(filter(None, [passes, replaced])),
            )
        except ToolFailure as error:
            self._found.no_script = str(error)
        self._found.expected_output = expected_output(self._failure)
        self._save()

    def _as_in_program(self, smallest: Candidate) -> Candidate:
        """The way that the program takes, if it fails there as well."""
        way = special_flow(smallest)
        self._found.shows_with_torch_compile = not way
        if way == self._flow or smallest.guarded:
            return smallest  # A script cannot fill the buffers of a C++ wrapper.
        candidate = compiled_like(smallest, self._own)
        self._say(f"trying the smallest graph with {self._flow}")
        again = self._oracle.failure(candidate, label=" in full")
        return candidate if again is not None and again.is_same_as(self._failure) else smallest

    def _find_suppressing_axes(self) -> None:
        """Axes without which the failure disappears."""
        axes = relevant_axes(self._smallest, self._failure, self._location)
        self._say(f"trying without: {', '.join(axis.name for axis in axes)}")
        self._found.suppressing_axes = find_suppressing_axes(
            self._smallest, self._failure, axes, self._oracle.forks
        )
        self._save()

    def _find_workarounds(self) -> None:
        self._say("trying workarounds")
        axes = {axis.name: axis for axis in AXES}
        known = [(axes[each.axis], each.application) for each in self._found.suppressing_axes]
        self._found.workarounds = try_workarounds(
            self._whole, self._found, self._location, known, self._oracle
        )
        self._save()


_ONLY_IN_PACKAGE = (
    "each buffer was compared with its node; the same graph is right with torch.compile and a "
    "wrapper in Python"
)


def _is_in_kernel(failure: Failure) -> bool:
    """Whether a kernel never returns, rather than the compiler."""
    return failure.kind == HANG and failure.stage == stages.RUNTIME


def _is_again(again: Failure, first: Failure) -> bool:
    """Whether the graph alone shows what the program showed.

    An exception has to be the same one: the graph may not be one that Dynamo takes. A kernel that
    Triton refuses may be refused with another exception, depending on which process compiles it.
    """
    if first.kind == again.kind == ERROR and first.stage == again.stage == stages.TRITON_COMPILE:
        return True
    is_alike = first.kind != ERROR and again.kind == first.kind
    return is_alike or again.is_same_as(first)
