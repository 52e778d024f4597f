"""Judges a call whose tensors are too large to copy: one value at a time, in tiles.

Inputs that the graph only reads are shared by all runs: eager, compiled, and those with perturbed
rounding. Eager's results wait in main memory. Every other result is compared with them as soon as
it is known, and released. Only where a value differs most, tiles of it are kept; these are judged
like any other value, against float64 and samples of rounding.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import GraphModule
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from inductoscope.inside.compare.beside_eager import CallBesideEager, Refusal, refusal_by_any
from inductoscope.inside.compare.bug_or_rounding import (
    WITHIN_ROUNDING,
    EagerComparison,
    OutputDifference,
    comparison_of_metadata,
    is_close,
)
from inductoscope.inside.compare.graphs import as_function, bytes_of
from inductoscope.inside.compare.operators import is_custom
from inductoscope.inside.compare.reference import LazyFloat64, RoundingInTiles, unseen_warnings
from inductoscope.inside.compare.value_in_tiles import ValueInTiles, comparable
from inductoscope.inside.compare.values import (
    Outcome,
    input_name,
    is_plain,
    memory_of,
    passing_over_errors,
    run,
    same_modes,
    shared_copies,
    size_in_bytes,
    whole_memory,
    without_autocast_cache,
)
from inductoscope.inside.memory_budget import ask_for_main_memory, give_back
from inductoscope.inside.scope import chain_of
from inductoscope.inside.search.candidate import writes_in_place
from inductoscope.recording.events import TOO_LARGE_TO_COPY
from inductoscope.torch_facts.messages import says_lack_of_memory
from inductoscope.wording import count_of

# --- which inputs a graph writes to ---------------------------------------------------------------

_OWN_KERNELS = ("triton_kernel_wrapper_mutation", "triton_kernel_wrapper_functional")


def written_inputs(module: GraphModule, arguments: Sequence[Any]) -> frozenset[int] | None:
    """Return the numbers of the inputs whose memory the graph writes to; None if it is unknown.

    The graph runs on fake tensors, and every operation says in its schema what it writes to.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    # Without a ShapeEnv, no size may depend on values.
    mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())

    def fake(value: Any) -> Any:
        is_tensor = isinstance(value, torch.Tensor)
        return mode.from_tensor(value, static_shapes=True) if is_tensor else value

    try:
        with same_modes(), mode:
            fakes = [fake(value) for value in arguments]
            with _Writes() as writes:
                as_function(module)(*fakes)
    except Exception:
        return None
    written = {
        memory_of(value)
        for value, fake in zip(arguments, fakes, strict=True)
        if isinstance(fake, torch.Tensor) and memory_of(fake) in writes.memories
    }
    given = enumerate(arguments)
    return frozenset(n for n, v in given if isinstance(v, torch.Tensor) and memory_of(v) in written)


class _Writes(TorchDispatchMode):
    """A dispatch mode that notes the memory to which operations write."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.memories: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.HigherOrderOperator):
            if func.name() in _OWN_KERNELS or _has_writing_graph(args):
                self._note((args, kwargs))
            return func(*args, **kwargs)
        if is_custom(func):
            self._note((args, kwargs))  # Its schema may be wrong.
        for number, argument in enumerate(func._schema.arguments):
            is_write = argument.alias_info is not None and argument.alias_info.is_write
            if is_write or argument.name in _WRITTEN_UNSAID:
                self._note(args[number] if number < len(args) else kwargs.get(argument.name))
        return func(*args, **kwargs)

    def _note(self, given: Any) -> None:
        self.memories |= {memory_of(v) for v in tree_leaves(given) if isinstance(v, torch.Tensor)}


# What batch norm updates, though the schemas of its operations do not say so.
_WRITTEN_UNSAID = ("running_mean", "running_var")


def _has_writing_graph(given: Any) -> bool:
    graphs = [leaf.graph for leaf in tree_leaves(given) if isinstance(leaf, GraphModule)]
    return any(writes_in_place(node) for graph in graphs for node in graph.nodes)


# --- the call -------------------------------------------------------------------------------------

_SAMPLES, _MOST_SAMPLES = 3, 20
_SMALL = 1 << 20


class CannotJudge(Exception):
    """Raised if values differ, and no run tells how far rounding moves them."""


@dataclass
class LargeCall:
    """A call of a graph, which is made again on the program's own tensors."""

    module: GraphModule
    arguments: Sequence[Any]
    # The inputs that the graph writes to; after every run they are as they were before.
    written: frozenset[int]
    backward: bool
    # How far rounding has moved the values of an earlier call, as a part of their size.
    known_noise: dict[str, float] = field(default_factory=dict)
    _seen: dict[str, ValueInTiles] = field(default_factory=dict)

    @cached_property
    def _in_eager(self) -> Outcome | Exception:
        before = self._sums()
        try:
            found = self._run(as_function(self.module), self._keep)
        except CannotJudge:
            raise
        except Exception as error:
            if is_lack_of_memory(error):
                raise
            return error
        if self._sums() != before:
            raise CannotJudge  # An operation writes to an input, and does not say so.
        return found

    @property
    def eager(self) -> Outcome:
        """The forms of eager's results; their values wait in main memory."""
        assert isinstance(self._in_eager, Outcome)
        return self._in_eager

    @property
    def error_in_eager(self) -> Exception | None:
        return self._in_eager if isinstance(self._in_eager, Exception) else None

    @property
    def kept_bytes(self) -> int:
        """The bytes that are kept in main memory: eager's results, and inputs to be restored."""
        outputs = self.module.graph.output_node().all_input_nodes
        found = sum(map(bytes_of, outputs))
        for number, value in enumerate(self.arguments):
            if isinstance(value, torch.Tensor) and value.requires_grad and self.backward:
                found += value.nbytes
            if number in self.written:
                found += value.nbytes
        return found + size_in_bytes([self.arguments[number] for number in self.written])

    @property
    def most_bytes(self) -> int:
        """The bytes that a call may take: all that the graph computes, and what is kept of it."""
        return self.kept_bytes + sum(map(bytes_of, self.module.graph.nodes))

    @property
    def is_suspicious(self) -> bool:
        """Whether a value that rounding may explain is farther from eager than is usual."""
        return any(seen.is_suspicious for seen in self._seen.values() if not seen.is_close)

    @property
    def how(self) -> str:
        """How the values were compared, as an addition to what was found."""
        sampled = sum(not seen.is_close for seen in self._seen.values())
        values = count_of(len(self._seen), "value")
        text = f"; {TOO_LARGE_TO_COPY}: {values} compared in tiles"
        return f"{text}, {sampled} of them with samples of rounding" if sampled else text

    def beside_eager(
        self, compiled: Callable[..., Any], before_judging: Callable[[], None] = lambda: None
    ) -> CallBesideEager:
        """Make the compiled call, and judge it; a value that is not close takes several runs."""
        in_eager, before = self.eager, self._sums()
        try:
            outcome = self._run(compiled, self._take("take_compiled"), saves_memory=False)
        except CannotJudge:
            raise
        except Exception as error:
            if is_lack_of_memory(error):
                raise
            return CallBesideEager(error=error, refusal=self._refusal(error))
        changed = [n for n, total in self._sums().items() if total != before[n]]
        if any(_may_be_changed_by_others(self.arguments[number]) for number in changed):
            raise CannotJudge
        found = comparison_of_metadata(in_eager, outcome)
        if changed or any(item.kind == "structure" for item in found.wrong):
            wrong = (*found.wrong, *map(_is_overwritten, changed))
            return CallBesideEager(EagerComparison(wrong=wrong), outcome.seconds)
        numbers = tuple(_differing_numbers(in_eager, outcome))
        found = replace(found, wrong=(*found.wrong, *numbers))
        if not all(seen.is_close for seen in self._seen.values()):
            before_judging()
        return CallBesideEager(self._judged(found), outcome.seconds)

    def _refusal(self, error: Exception) -> Refusal | None:
        """Return the excuse for an error of torch's NaN check: NaN that eager has as well."""
        given = ((f"input {number}", value) for number, value in enumerate(self.arguments))
        made = ((name, seen.eager) for name, seen in self._seen.items())
        return refusal_by_any(error, itertools.chain(given, made))

    def _judged(self, found: EagerComparison) -> EagerComparison:
        unlike = {name: seen for name, seen in self._seen.items() if not seen.is_close}
        self._sample(unlike)
        worst = [name for name, seen in unlike.items() if not seen.is_explained]
        references = self._more_about({name: unlike[name] for name in worst})
        if any(not unlike[name].samples and name not in references for name in worst):
            raise CannotJudge
        wrong, explained = list(found.wrong), list[OutputDifference]()
        for name, seen in unlike.items():
            is_wrong, difference = False, seen.within_noise(name)
            if name in worst:
                difference, is_wrong = seen.judged(name, references.get(name, ()))
                # Only a part of the value was judged.
                difference = difference if is_wrong else replace(difference, largest=seen.largest)
            (wrong if is_wrong else explained).append(difference)
        return EagerComparison(
            wrong=tuple(wrong),
            explained=tuple(explained),
            reason=WITHIN_ROUNDING if explained else "",
            values=len(self._seen),
            is_exact=all(seen.is_exact for seen in self._seen.values()),
            noted=found.noted,
        )

    # --- samples of rounding, and float64 where it decides ----------------------------------------

    def _sample(self, unlike: Mapping[str, ValueInTiles]) -> None:
        """Run the call with perturbed rounding, until that explains every value, or a few times."""
        sizes = {name: seen.size for name, seen in unlike.items()}
        for name, seen in unlike.items():
            seen.noise = self.known_noise.get(name, 0.0) * sizes[name]
        for seed in range(_SAMPLES):
            if all(seen.is_explained for seen in unlike.values()):
                return
            self._run_again(RoundingInTiles(seed), self._take("take_sample"))
            for name, seen in unlike.items():
                self.known_noise[name] = seen.noise / sizes[name] if sizes[name] else 0.0

    def _more_about(self, values: Mapping[str, ValueInTiles]) -> dict[str, list[torch.Tensor]]:
        """Repeat the call in eager, and return the worst tiles of these values in float64."""
        if not values:
            return {}
        if any(seen.samples for seen in values.values()):
            self._run_again(None, self._take("take_sample"))
        counted = [seen for seen in values.values() if not seen.is_measured]
        for seed in range(_SAMPLES, _MOST_SAMPLES):
            if not any(seen.judged("", ())[1] for seen in counted):
                break  # Rounding upstream changes an integer in few samples.
            self._run_again(RoundingInTiles(seed), self._take("take_sample"))
        found: dict[str, list[torch.Tensor]] = {}

        def keep(name: str, value: Any) -> None:
            if name in values and isinstance(value, torch.Tensor):
                found[name] = values[name].parts_of(comparable(value))

        self._run_again(LazyFloat64(), keep)
        return found

    def _run_again(self, mode: Any, keep: Callable[[str, Any], Any]) -> None:
        """Run the call in eager under a mode, if that is possible, and if memory suffices."""
        with passing_over_errors():
            self._run(as_function(self.module), keep, mode)

    # --- runs -------------------------------------------------------------------------------------

    def _run(
        self,
        function: Callable[..., Any],
        keep: Callable[[str, Any], Any],
        mode: Any = None,
        *,
        saves_memory: bool = True,
    ) -> Outcome:
        hooks = saved_in_main_memory(self._shared.values()) if saves_memory else None
        dtype = torch.float64 if isinstance(mode, LazyFloat64) else None

        def copy(values: Sequence[Any]) -> list[Any]:
            if dtype is not None:
                return shared_copies(values, self.written, dtype=dtype)
            return self.lent()

        give_back()  # What the last run has left in the allocator may not fit this one.
        problems: list[Exception] = []

        def kept(name: str, value: Any) -> Any:
            try:
                return keep(name, value)
            except Exception as error:
                if is_lack_of_memory(error):
                    raise
                problems.append(error.with_traceback(None))  # Whose frames hold the value.
                return _form(value)

        saving = hooks or contextlib.nullcontext()
        with saving, unseen_warnings(), without_autocast_cache(), self.restoring():
            outcome = run(
                function, self.arguments, backward=self.backward, mode=mode, copy=copy, keep=kept
            )
        if problems:
            raise CannotJudge from problems[0]
        return outcome

    def lent(self) -> list[Any]:
        """Return the arguments, for a run inside of `restoring` to write to."""
        copied = {number for number in self.written if not self._is_restored(number)}
        given = shared_copies(self.arguments, copied)
        return [_written_to(v) if self._is_restored(n) else v for n, v in enumerate(given)]

    def _is_restored(self, number: int) -> bool:
        return number in self.written and memory_of(self.arguments[number]) in self._restored

    @cached_property
    def _restored(self) -> dict[Any, tuple[torch.Tensor, torch.Tensor]]:
        """The memory of inputs that are written to, and what it held, kept in main memory.

        All inputs in the same memory are written to.
        """
        given = [self.arguments[number] for number in self.written]
        memories = {
            memory_of(value): whole_memory(value, torch.uint8)
            for value in given
            if is_plain(value) and not _may_be_changed_by_others(value)
        }
        ask_for_main_memory(sum(memory.nbytes for memory in memories.values()))
        return {key: (memory, memory.to("cpu", copy=True)) for key, memory in memories.items()}

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Let the block write to the program's own tensors."""
        lent = self._restored.values()
        try:
            yield
        finally:
            for memory, held in lent:
                memory.copy_(held)

    def _keep(self, name: str, value: Any) -> Any:
        """Keep a value of eager in main memory; return its form."""
        has_values = isinstance(value, torch.Tensor) and not value.is_meta
        if not has_values or name in self._shared_names:
            return _form(value)
        kept = comparable(value)
        self._seen[name] = ValueInTiles(kept.to("cpu", copy=memory_of(kept) in self._restored))
        return _form(value)

    def _take(self, how: str) -> Callable[[str, Any], Any]:
        """Return what compares values with eager's, by that method of what is known of them."""

        def take(name: str, value: Any) -> Any:
            seen = self._seen.get(name)
            if seen is not None and isinstance(value, torch.Tensor):
                other = comparable(value)
                if _is_alike(seen.eager, other):
                    getattr(seen, how)(other)
            return _form(value)

        return take

    @cached_property
    def _shared(self) -> dict[int, torch.Tensor]:
        given = enumerate(self.arguments)
        return {n: v for n, v in given if isinstance(v, torch.Tensor) and n not in self.written}

    @cached_property
    def _shared_names(self) -> set[str]:
        return {input_name(number) for number in self._shared}

    def _sums(self) -> dict[int, int]:
        """Return a sum of the bytes of every shared input, which a write changes."""
        plain = {n: value for n, value in self._shared.items() if is_plain(value)}
        sums = {memory_of(value): value for value in plain.values()}
        found = {memory: _sum(value) for memory, value in sums.items()}
        return {n: found[memory_of(value)] for n, value in plain.items()}


def in_mebibytes(size: int) -> str:
    return f"{size >> 20} MiB"


def is_lack_of_memory(error: BaseException) -> bool:
    """Check whether memory did not suffice, of a device or of the machine."""
    kinds = (MemoryError, torch.OutOfMemoryError)
    return any(isinstance(e, kinds) or says_lack_of_memory(str(e)) for e in chain_of(error))


def saved_in_main_memory(inputs: Iterable[Any]) -> saved_tensors_hooks:
    """Return hooks that keep tensors for the backward pass in main memory, except for inputs."""
    shared = {memory_of(value) for value in inputs if isinstance(value, torch.Tensor)}
    # Several operations may save the same tensor. The key keeps the memory's identity in use.
    moved: dict[Any, torch.Tensor] = {}

    def pack(value: torch.Tensor) -> Any:
        is_on_device = is_plain(value) and value.device.type != "cpu"
        if not is_on_device or memory_of(value) in shared or value.nbytes < _SMALL:
            return value.detach()  # The value itself would hold its own history.
        form = (value.storage_offset(), value.size(), value.stride(), value.dtype, value._version)
        key = (StorageWeakRef(value.untyped_storage()), *form)
        with _disable_current_modes():
            if key not in moved:
                once = value.detach()[
                    tuple(slice(0, 1 if s == 0 else None) for s in value.stride())
                ]
                ask_for_main_memory(sum(v.nbytes for v in moved.values()) + once.nbytes)
                moved[key] = once.to("cpu")
            return value.device, value.size(), moved[key]

    def unpack(kept: Any) -> torch.Tensor:
        if isinstance(kept, torch.Tensor):
            return kept
        device, size, value = kept
        with _disable_current_modes():
            back: torch.Tensor = value.to(device).expand(size)
        return back

    return saved_tensors_hooks(pack, unpack)


def _form(value: Any) -> Any:
    """Return a tensor of the same form without memory; anything else as it is."""
    if not isinstance(value, torch.Tensor) or not is_plain(value):
        return value
    return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")


def _is_alike(one: torch.Tensor, two: torch.Tensor) -> bool:
    return one.shape == two.shape and one.dtype == two.dtype


def _may_be_changed_by_others(value: torch.Tensor) -> bool:
    """Check for memory that other processes may write to, or a file that is mapped."""
    return value.device.type == "cpu" and value.is_shared()


def _written_to(value: torch.Tensor) -> torch.Tensor:
    """Return a tensor whose writes do not count as changes of the program's own."""
    return value.data.requires_grad_(value.requires_grad)


def _sum(value: torch.Tensor) -> int:
    whole = whole_memory(value, torch.uint8)
    count = whole.numel() // 8
    words = whole[: 8 * count].view(torch.int64)
    return int(words.sum()) + int(whole[8 * count :].sum())


def _differing_numbers(eager: Outcome, compiled: Outcome) -> Iterator[OutputDifference]:
    pairs = zip(eager.named_values(), compiled.named_values(), strict=True)
    for (name, one), (_, two) in pairs:
        if not isinstance(one, torch.Tensor) and not is_close(one, two):
            yield OutputDifference("value", name, f"{name} is {two!r}, in eager {one!r}")


def _is_overwritten(number: int) -> OutputDifference:
    text = f"compiled code writes to input {number}, which eager only reads"
    return OutputDifference("value", input_name(number), text)
