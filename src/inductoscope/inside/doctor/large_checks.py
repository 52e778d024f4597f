"""Checks of a call whose tensors are too large to copy, and the part of its graph to search in.

A search compiles a graph many times, on copies of its inputs. So a large graph is cut before it is
searched: to what surrounds the first wrong kernel, or to one of several blocks that are alike, with
the values that it reads in the program's own call.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.fx import Node

from inductoscope.doctor.failure import NAN, WRONG, Failure, Location
from inductoscope.errors import ToolFailure
from inductoscope.inside.compare.large_calls import LargeCall
from inductoscope.inside.compare.values import run, shared_copies
from inductoscope.inside.doctor.further_checks import FailingCandidate
from inductoscope.inside.doctor.program_copy import run_forking
from inductoscope.inside.memory_budget import give_back
from inductoscope.inside.scope import SCOPE, say
from inductoscope.inside.search.candidate import Candidate, has_transforms
from inductoscope.inside.search.failure_signature import failure_of_signal
from inductoscope.inside.search.forks import Forks, can_fork
from inductoscope.inside.search.location import first_wrong_own_kernel, location_of_answer
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.shrink import all_resized
from inductoscope.inside.search.subgraph import record_values_of, subgraph
from inductoscope.torch_facts.messages import says_lack_of_memory

_SECONDS = 300.0
# Each part takes a run of the graph in eager, and a compile.
_SECONDS_FOR_PARTS = 300.0
# Sizes to which every larger dimension is cut.
_SIZES = (33, 257, 2049)
OF_VALUES = (WRONG, NAN)


def death_in_fork(call: LargeCall, function: Callable[..., Any]) -> Failure | None:
    """Return the failure of a call that kills its process; its backward is not tried.

    Raises `MemoryError` if the system ends the fork: here, that would be the program's end.
    """
    copy = partial(shared_copies, written=call.written)

    def work() -> bool:
        return bool(run(function, call.arguments, backward=False, copy=copy))

    answer = Forks(workers=1, seconds=_SECONDS).ask(work)
    if answer.signal == signal.SIGKILL:
        raise MemoryError
    return None if answer.signal is None else failure_of_signal(answer)


# --- a part of a large graph that fails alone -----------------------------------------------------


@dataclass(frozen=True)
class LargeGraph:
    """A graph that fails on inputs that are not copied."""

    whole: Candidate
    call: LargeCall
    folder: Path
    # None if only a kernel is wrong.
    failure: Failure | None = None

    def first_wrong_kernel(self, compiled: Callable[..., Any]) -> Location:
        """Call the compiled graph once more, and compare each kernel with eager in step."""
        say("comparing every kernel with eager, one after the other")
        give_back()

        def work() -> Location:
            with self.call.restoring():
                return first_wrong_own_kernel(self.whole, compiled, lent=self.call.lent)

        answer = Forks(workers=1, seconds=_SECONDS).ask(work)
        if answer.error and not says_lack_of_memory(answer.error):
            SCOPE.take_failure(ToolFailure(answer.error), first_wrong_own_kernel)
        return location_of_answer(answer)

    def part_around(self, location: Location) -> FailingCandidate | None:
        """Return a part of the graph around a wrong kernel that fails alone in this call."""
        found = self._first_failing(self._around(location)) if location.suspects else None
        return None if found is None else replace(found, location=location)

    def failing_block(self) -> FailingCandidate | None:
        """Return a part of the graph that fails alone in this call, or the graph when smaller."""
        found = self._first_failing(self._blocks())
        return self._smaller() if found is None and self.failure is not None else found

    def _first_failing(self, parts: Iterator[Sequence[str]]) -> FailingCandidate | None:
        started = time.monotonic()
        for names in () if has_transforms(self.whole) else parts:
            found = self._failing(names)
            if found is not None or time.monotonic() - started > _SECONDS_FOR_PARTS:
                return found
        return None

    def _around(self, location: Location) -> Iterator[Sequence[str]]:
        operations = self.whole.operations
        yield location.suspects
        if location.of_kernel:
            yield location.of_kernel
        places = [n for n, node in enumerate(operations) if node.name in location.suspects]
        for more in _MORE_NODES:
            around = operations[max(0, min(places) - more) : max(places) + more + 1]
            yield [node.name for node in around]

    def _blocks(self) -> Iterator[Sequence[str]]:
        operations = self.whole.operations
        say("trying each distinct block of the graph alone")
        for longest in _LONGEST_BLOCKS if self._is_of_values else _LONGEST_BLOCKS[:1]:
            for block in distinct_blocks(operations, longest):
                yield [node.name for node in block]

    def _failing(self, names: Sequence[str]) -> FailingCandidate | None:
        with self.call.restoring():
            given, written = self.call.lent(), self.call.written
            recorded = record_values_of(self.whole, names, given, written)
        part = subgraph(recorded, names)
        if part is None:
            return None
        failure = run_forking(failure_alone, part, folder=self.folder)
        return FailingCandidate(part, failure) if self._is_wanted(failure) else None

    @property
    def _is_of_values(self) -> bool:
        return self.failure is None or self.failure.kind in OF_VALUES

    def _is_wanted(self, failure: Failure | None) -> bool:
        if failure is None:
            return False
        if self.failure is None or self._is_of_values:
            return failure.kind in OF_VALUES
        return failure.is_same_as(self.failure)

    def _smaller(self) -> FailingCandidate | None:
        """Return the same graph on smaller inputs, if it is wrong there.

        Eager may refuse these, which costs a GPU the whole process.
        """
        for size in _SIZES if can_fork() else ():
            smaller = all_resized(self.whole, size)
            if smaller is None:
                continue
            failure = run_forking(failure_alone, smaller, folder=self.folder)
            if self._is_wanted(failure):
                return FailingCandidate(smaller, failure, f"with no dimension larger than {size}")
        return None


def failure_alone(part: Candidate) -> Failure | None:
    """Return the failure of a part that is compiled alone."""
    return Oracle(Forks(seconds=_SECONDS, uses_gpu=bool(part.device))).failure(part)


# --- blocks that are alike ------------------------------------------------------------------------

_MORE_NODES = (4, 24)
# In a short block, no residual connection drowns a small fault.
_LONGEST_BLOCKS = (60, 3)


def distinct_blocks(
    operations: Sequence[Node], longest: int = _LONGEST_BLOCKS[0]
) -> list[list[Node]]:
    """Split a graph into blocks, such as the layers of a model; of several alike, the first."""
    found: dict[Any, list[Node]] = {}
    for block in _blocks(operations, longest):
        found.setdefault(tuple(_form(node) for node in block), block)
    return list(found.values())


def _blocks(operations: Sequence[Node], longest: int) -> Iterator[list[Node]]:
    block: list[Node] = []
    for node in operations:
        is_other = block and _layer(node) != _layer(block[0])
        if is_other or len(block) == longest:
            yield block
            block = []
        block.append(node)
    if block:
        yield block


def _layer(node: Node) -> str:
    """Return the module that a node belongs to, up to its last number; "" if that is not known."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]).split(".") if stack else []
    numbered = [place for place, part in enumerate(path) if part.strip("[]'").isdigit()]
    return ".".join(path[: numbered[-1] + 1]) if numbered else ""


def _form(node: Node) -> Any:
    value = node.meta.get("example_value")
    form = (value.shape, value.dtype) if isinstance(value, torch.Tensor) else ()
    return node.op, str(node.target), str(form)
