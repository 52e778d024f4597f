"""Judges candidates: compiles each in a fork and compares it with eager.

A known candidate is answered from memory, or from the recording of an earlier run. Any other
candidate is tried, and the answer goes into both.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.failure import Failure
from inductoscope.inside.compare.bug_or_rounding import comparison_of_metadata, judge
from inductoscope.inside.compare.graphs import as_function, graph_code, input_names
from inductoscope.inside.compare.guarded_memory import GuardedMemory
from inductoscope.inside.compare.kernels import KernelWatch
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import Outcome, copy_values, is_plain, run
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.candidate import Candidate, CandidateTrial, marking, open_sizes
from inductoscope.inside.search.failure_signature import (
    failure_of_answer,
    failure_of_comparison,
    failure_of_error,
    innermost,
    note_eager_error,
)
from inductoscope.inside.search.forks import ForkAnswer, Forks, Work
from inductoscope.inside.search.placement import is_for_gpu, placed
from inductoscope.inside.search.user_kernels import keeping_kernels, with_kernels_launched
from inductoscope.packages import cpp_library
from inductoscope.recording.codec import decode, encode
from inductoscope.recording.events import CandidateJudged
from inductoscope.recording.written import written_events
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.stages import AOT_INDUCTOR

Around = Callable[[], contextlib.AbstractContextManager[Any]]

# Results must come from a compile, not from a cache. Compiled binaries may be reused, since they
# are found by their source.
_NO_RESULT_CACHES = {
    "torch._inductor.config": {"fx_graph_cache": False, "fx_graph_remote_cache": False},
    "torch._functorch.config": {"enable_autograd_cache": False},
}


def examine(candidate: Candidate, around: Around = contextlib.nullcontext) -> Failure | None:
    """Compile and run the candidate in this process; return None if it agrees with eager.

    Raises `EagerFails` if eager fails too, unless the candidate is about that error.
    """
    candidate = placed(candidate)
    case = Case(as_function(candidate.module), candidate.inputs, candidate.backward)
    refused = case.eager_error
    if refused is not None and not candidate.eager_raises:
        raise EagerFails(f"{type(refused).__name__}: {refused}") from refused
    if refused is not None:
        note_eager_error(refused)
    elif candidate.eager_raises:
        return None
    outcome: Outcome | BaseException
    with compiling(candidate), around():
        try:
            outcome = run_compiled(candidate, compiled(candidate))
        except Exception as error:
            if refused is None:
                return None if is_past(error) else failure_of_error(error)
            outcome = innermost(error)
    if candidate.draws_inductor_random_numbers and isinstance(outcome, Outcome) and not refused:
        comparison = comparison_of_metadata(case.eager, outcome)
    else:
        comparison = judge(case, outcome)
    found = failure_of_comparison(comparison.counting(candidate.counts))
    return found and replace(found, memory_was_filled=_is_in_filled_memory(candidate))


def run_compiled(candidate: Candidate, function: Callable[..., Any]) -> Outcome:
    """Call a compiled function on the earlier inputs, if any, and then on the candidate's."""
    copy = GuardedMemory().copies if candidate.guarded else copy_values
    if candidate.earlier is not None:
        run(function, candidate.earlier, backward=candidate.backward, copy=copy)
    return run(function, candidate.inputs, backward=candidate.backward, copy=copy)


def ending_of_compiled(
    candidate: Candidate, function: Callable[..., Any]
) -> Outcome | BaseException:
    """Call a compiled function as `run_compiled` does; return the error if it raises one."""
    try:
        return run_compiled(candidate, function)
    except Exception as error:
        return innermost(error)


class EagerFails(Exception):
    """The candidate fails in eager too, so it says nothing about the compiler."""


def compiled(
    candidate: Candidate, backend: str | Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Compile the candidate's graph through its flow; options are passed to Inductor only."""
    if candidate.flow == AOT_INDUCTOR and backend is None:
        return compiled_ahead_of_time(candidate)
    how = {"backend": backend} if backend else {"options": _options(candidate) or None}
    module = with_kernels_launched(candidate.module)
    function = torch.compile(module, dynamic=candidate.dynamic, **how)
    return marking(candidate.module, candidate.marks, function)


def _options(candidate: Candidate) -> dict[str, Any]:
    given = candidate.options.items()
    return {name: value for name, value in given if not name.startswith(OWN_OPTIONS)}


@contextlib.contextmanager
def patched(settings: Mapping[str, Any], module: str = "torch._inductor.config") -> Iterator[None]:
    """Patch config settings inside the block; skip settings that this torch does not have."""
    config: Any = importlib.import_module(module)
    known = {name: value for name, value in settings.items() if name in config._config}
    with config.patch(known):
        yield


@contextlib.contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Replace a function of torch inside the block by one that gets the original in addition."""
    before = owner.__dict__[name]
    # A class method or a static one has the function itself inside.
    original = getattr(before, "__func__", before)

    def call(*args: Any, **more: Any) -> Any:
        return function(original, *args, **more)

    setattr(owner, name, call if before is original else type(before)(call))
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextlib.contextmanager
def compiling(candidate: Candidate, *, in_filled_memory: bool = True) -> Iterator[None]:
    """Enter the state to compile a candidate in: a fresh compiler, its settings, no caches.

    On a GPU, memory is reused at once, so an uninitialised read may look right by chance unless
    every buffer is filled first. On the CPU, buffers are filled if the candidate asks for that.
    """
    prepare_compiler()
    with contextlib.ExitStack() as stack:
        if in_filled_memory and _is_in_filled_memory(candidate):
            stack.enter_context(GuardedMemory().active())
        for module, settings in _NO_RESULT_CACHES.items():
            stack.enter_context(patched(settings, module))
        stack.enter_context(patched(candidate.config))
        if candidate.dynamic is None:
            # An enclosing call of the program may have set dynamic=True.
            settings = {"assume_static_by_default": True}
            stack.enter_context(patched(settings, "torch._dynamo.config"))
        yield


def _is_in_filled_memory(candidate: Candidate) -> bool:
    return candidate.guarded or is_for_gpu(candidate)


def prepare_compiler() -> None:
    """Reset Dynamo, and drop the compile workers, whose threads a fork does not have."""
    import torch._dynamo
    from torch._inductor.async_compile import AsyncCompile

    with keeping_kernels():
        torch._dynamo.reset()
    with contextlib.suppress(AttributeError):
        AsyncCompile.pool.cache_clear()


# Stages that end before the generated code is compiled; choices are timed with compiled kernels.
_ORDER = stages.COMPILER_ORDER
_BEFORE_NATIVE = {*_ORDER[: _ORDER.index(stages.WRAPPER)]} - {stages.AUTOTUNE}


class _Past(Exception):
    """Raised when the compile has passed the stage of the failure in question."""


@contextlib.contextmanager
def no_further_than(stage: str) -> Iterator[None]:
    """Stop before generated code is compiled, if the stage comes before that.

    Compiling that code takes most of the time and cannot cause a failure in an earlier stage.
    """
    if stage not in _BEFORE_NATIVE:
        yield
        return
    from torch._inductor.graph import GraphLowering

    def past(*args: Any, **kwargs: Any) -> Any:
        raise _Past

    with replaced(GraphLowering, "_compile_to_module_lines", past):
        yield


def is_past(error: BaseException) -> bool:
    return isinstance(innermost(error), _Past)


# --- the oracle -----------------------------------------------------------------------------------


@dataclass
class Oracle:
    """A judge of candidates, which tries them in forks and remembers the answers."""

    forks: Forks
    # Recordings of this examination, from which earlier answers are read; new answers are added to
    # the process's own. With None, nothing is remembered beyond this process.
    recordings: Sequence[str] | None = None
    # The stage of the failure, if compiling further cannot change it: of an error or a hang.
    stage: str = ""
    # Announce every kernel, so that the last one is known if the process dies.
    watch_kernels: bool = False
    mistakes: list[str] = field(default_factory=list)
    # The error of the last candidate in eager, if it failed there.
    eager_error: str = ""
    # The time after which unknown candidates count as not failing.
    deadline: float = math.inf
    _known: dict[str, Failure | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for entry in written_events(map(Path, self.recordings or ()), CandidateJudged.kind):
            with contextlib.suppress(ValueError, KeyError):
                failure = entry.get("failure")
                known = None if failure is None else decode(Failure, failure)
                self._known[str(entry["candidate"])] = known

    def failure(self, candidate: Candidate, *, label: str = "") -> Failure | None:
        return dict(self.as_known([candidate], label=label))[0]

    def first(self, candidates: Sequence[Candidate | None], failure: Failure) -> int | None:
        """Return the number of the first candidate with the same failure; skip the rest."""
        possible = [(number, item) for number, item in enumerate(candidates) if item is not None]
        answers: dict[int, bool] = {}
        for place, found in self.as_known([item for _, item in possible]):
            answers[place] = found is not None and found.is_same_as(failure)
            before = itertools.takewhile(answers.__contains__, range(len(possible)))
            shown = next(filter(answers.__getitem__, before), None)
            if shown is not None:
                return possible[shown][0]
        return None

    def as_known(
        self, items: Sequence[Candidate | Work], *, label: str = ""
    ) -> Iterator[tuple[int, Any]]:
        """Yield numbered answers as they become known, from parallel forks.

        The answer to a candidate is its failure or None; to other work, the fork's `ForkAnswer`.
        """
        # Identical candidates are tried once.
        alike: dict[str, list[int]] = {}
        for number, item in enumerate(items):
            key = digest(item) + label if isinstance(item, Candidate) else f"work {number}"
            if key in self._known:
                yield number, self._known[key]
            else:
                alike.setdefault(key, []).append(number)
        if time.monotonic() > self.deadline:
            yield from ((number, None) for numbers in alike.values() for number in numbers)
            return
        groups = [(key, numbers, items[numbers[0]]) for key, numbers in alike.items()]
        works = [self._work(i) if isinstance(i, Candidate) else i for _, _, i in groups]
        for place, answer in self.forks.as_done(works):
            key, numbers, item = groups[place]
            found = self._noted(key, item, answer) if isinstance(item, Candidate) else answer
            yield from ((number, found) for number in numbers)

    def _noted(self, key: str, candidate: Candidate, answer: ForkAnswer) -> Failure | None:
        """Judge a candidate, and remember its failure unless the tool itself failed."""
        found = self._judged(candidate, answer)
        if isinstance(answer.result, dict):
            self.eager_error = str(answer.result.get("eager") or "")
        if answer.error:
            self.mistakes.append(answer.error)
        else:
            self._remember(key, found)
        return found

    def _work(self, candidate: Candidate) -> Work:
        return PlainTrial(candidate, self.stage, self.watch_kernels)

    def _judged(self, candidate: Candidate, answer: ForkAnswer) -> Failure | None:
        return failure_of_answer(answer)

    def _remember(self, key: str, found: Failure | None) -> None:
        self._known[key] = found
        if self.recordings is not None:
            SCOPE.emit(CandidateJudged(candidate=key, failure=encode(found)))


@dataclass(frozen=True)
class PlainTrial(CandidateTrial):
    stage: str = ""
    watch_kernels: bool = False

    def __call__(self) -> Any:
        try:
            found = examine(self.candidate, self._surroundings)
        except EagerFails as error:
            return {"failure": None, "eager": str(error)}
        return {"failure": found}

    def _surroundings(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context of the compile, which announces kernels or stops early."""
        if self.watch_kernels:
            return KernelWatch(compare=False).watching()
        return no_further_than(self.stage)


def digest(candidate: Candidate) -> str:
    hasher = hashlib.blake2b(digest_size=12)
    hasher.update(graph_code(candidate.module).encode())
    for value in (*candidate.inputs, *(candidate.earlier or ())):
        hasher.update(_fingerprint(value).encode())
    settings = [candidate.backward, candidate.dynamic, candidate.options, candidate.config]
    hasher.update(repr([*settings, *candidate.counts, *candidate.marks]).encode())
    hasher.update(repr([candidate.flow, sorted(candidate.constants)]).encode())
    hasher.update(b"guarded" if candidate.guarded else b"")
    hasher.update(b"eager raises" if candidate.eager_raises else b"")
    return hasher.hexdigest()


def _fingerprint(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    form = f"{tuple(value.shape)} {value.dtype} {value.requires_grad}"
    if value.layout is not torch.strided or not is_plain(value):
        return f"{form} {type(value).__name__}"
    numbers = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    if numbers.numel() % 8 == 0:
        numbers = numbers.view(torch.int64)
    weights = torch.arange(1, numbers.numel() + 1, device="cpu")
    sums = int(numbers.sum(dtype=torch.int64)), int((numbers * weights).sum())
    return f"{form} {value.stride()} {sums}"


# --- A candidate through AOTInductor: exported, compiled into a library, loaded and called --------
#
# A candidate has its weights as inputs. Those that it names as constants are stored in the library,
# as in the program's own package; the others are passed to it.


# Settings of AOTInductor have no meaning for torch.compile.
OWN_OPTIONS = "aot_inductor."
# A callback that gets the compiled graph, whose nodes have other names, and its inputs.
Seen = Callable[[GraphModule, tuple[Any, ...]], None]

_numbers = itertools.count()


class ExportableGraph(torch.nn.Module):
    """The candidate's graph as a module that keeps some of its inputs as constants."""

    def __init__(self, candidate: Candidate, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self._names = input_names(candidate.module)
        self._constants = candidate.constants
        self._function = as_function(candidate.module)
        for name, value in zip(self._names, inputs, strict=True):
            if name in self._constants:
                self.register_buffer(f"stored_{name}", value.detach())

    def forward(self, *given: Any) -> Any:
        """Run the graph, with stored inputs as constants."""
        rest = iter(given)
        values = [
            getattr(self, f"stored_{name}") if name in self._constants else next(rest)
            for name in self._names
        ]
        return self._function(*values)


def compiled_ahead_of_time(candidate: Candidate, seen: Seen | None = None) -> Callable[..., Any]:
    """Compile the candidate's graph with AOTInductor, on its first call."""
    names = input_names(candidate.module)
    loaded: Callable[..., Any] | None = None

    def call(*arguments: Any) -> Any:
        nonlocal loaded
        named = zip(names, arguments, strict=True)
        given = tuple(value for name, value in named if name not in candidate.constants)
        if loaded is None:
            loaded = _loaded(candidate, ExportableGraph(candidate, arguments), given, seen)
        return loaded(*given)

    return call


def _loaded(
    candidate: Candidate, program: ExportableGraph, given: tuple[Any, ...], seen: Seen | None
) -> Callable[..., Any]:
    with torch.no_grad():
        shapes = (_dynamic_shapes(candidate),)
        exported = torch.export.export(program, given, dynamic_shapes=shapes, strict=False)
        module = exported.module()
        if seen is not None:
            seen(module, given)
        path = torch._inductor.aot_compile(module, given, options=_package_options(candidate))
    device = next((str(v.device) for v in given if isinstance(v, torch.Tensor)), "cpu")
    if cpp_library.file_brings_own(Path(path)):
        cpp_library.take_from_torch()
    return torch._export.aot_load(str(path), device)


def _package_options(candidate: Candidate) -> dict[str, Any]:
    """Give every compile its own library: one that is loaded must not be overwritten."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder = Path(cache_dir()) / "ahead_of_time" / f"{os.getpid()}-{next(_numbers)}"
    folder.mkdir(parents=True, exist_ok=True)
    return {**candidate.options, f"{OWN_OPTIONS}output_path": f"{folder}/"}


def _dynamic_shapes(candidate: Candidate) -> tuple[Any, ...]:
    hint = torch.export.Dim.AUTO
    return tuple(
        sizes and {number: hint(**bounds) if bounds else hint for number, bounds in sizes.items()}
        for sizes in open_sizes(candidate)
    )
