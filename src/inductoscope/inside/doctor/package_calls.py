"""Calls of a loaded package: compared with the program that it was made from, if that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from inductoscope.doctor.instructions import MOVED
from inductoscope.errors import InductoscopeError
from inductoscope.inside.compare.graphs import input_names
from inductoscope.inside.compare.reference import with_perturbed_rounding
from inductoscope.inside.compare.values import plain_torch
from inductoscope.inside.doctor.checked_graph import CallNotes
from inductoscope.inside.doctor.exported_program import CompiledProgram
from inductoscope.inside.hooks.aot_inductor import calling_line
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.forks import Forks, can_fork_alone
from inductoscope.inside.search.other_sizes import is_right
from inductoscope.packages.constants import ConstantFacts, broken_demands, is_about_view
from inductoscope.packages.package import read_package
from inductoscope.recording.events import (
    FROM_ELSEWHERE,
    OUTSIDE,
    REJECTED,
    RIGHT_WITH_COPIES,
    GraphCall,
    GraphReturned,
)
from inductoscope.torch_facts.package_wrappers import (
    InputFacts,
    PackagedConstant,
    PackageGuards,
    broken,
)
from inductoscope.wording import count_of

# What is wrong with new constants; nothing, if the list is empty.
BrokenConstants = Mapping[str, list[str]]


@dataclass(frozen=True)
class NewConstants:
    """Tensors that were put in the place of a package's constants, by name."""

    given: Mapping[str, torch.Tensor]
    broken: BrokenConstants
    # Whether the program may change them later on, or they lie beside those in use.
    shared: bool
    # Gives the package the same constants once more, as copies. For a fork.
    with_copies: Callable[[], None] | None = None


# A server may call its package for days.
_MOST_CALLS_NOTED = 1000


class CallsFromElsewhere:
    """The calls of a package that this process has not made, so that only its demands are known."""

    def __init__(self, name: str, guards: PackageGuards | None, structure: Any) -> None:
        self._name = f"{FROM_ELSEWHERE}{name}"
        self._notes = CallNotes(self._name)
        self._guards = guards
        self._structure = structure
        self._calls = 0
        self._has_broken = False
        self._constants: dict[str, list[str]] = {}

    def replace_constants(self, new: NewConstants) -> None:
        """From now on the package has other constants."""
        self._constants.update(new.broken)

    def taking_views(self, texts: Sequence[str]) -> AbstractContextManager[None]:
        """Torch takes new constants in the block, which it may not survive."""
        return self._notes.taking_views(self._calls + 1, f"{'; '.join(texts)}{_called_at()}")

    def reject_constants(self, broken: Sequence[str], error: Exception) -> None:
        """Torch has raised an error instead of taking new constants."""
        note_rejected(self._notes, self._calls + 1, broken, error)

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        self._calls += 1
        if self._calls > _MOST_CALLS_NOTED:
            return function(*args, **kwargs)
        SCOPE.guard(self._note, args, kwargs)
        SCOPE.emit(GraphCall(compile=self._name, call=self._calls))
        try:
            return function(*args, **kwargs)
        except Exception as error:
            self._notes.checked(self._calls, "error", f"{type(error).__name__}: {error}")
            raise
        finally:
            SCOPE.emit(GraphReturned(compile=self._name, call=self._calls))

    def _note(self, args: Any, kwargs: dict[str, Any]) -> None:
        if self._calls == 1:
            self._notes.checked(self._calls, "skipped", self._why())
        values = flat_inputs(self._structure, args, kwargs)
        texts = broken_texts(self._guards, values, ()) if values else []
        texts += _all_texts(self._constants)
        if texts and not self._has_broken:
            self._has_broken = True
            self._notes.checked(self._calls, OUTSIDE, f"{'; '.join(texts)}{_called_at()}")

    def _why(self) -> str:
        known = "" if self._guards is not None else ", and it does not say what it accepts"
        return f"it was made elsewhere, so there is no program to compare it with{known}"


class CheckedCalls:
    """The calls of one loaded package."""

    def __init__(
        self, program: CompiledProgram, guards: PackageGuards | None, *, is_flat: bool = False
    ) -> None:
        """`is_flat`: it is called with a list of tensors, as torch's loader is."""
        self._program = program
        self._guards = guards
        self._graph = program.new_graph()
        self._is_flat = is_flat
        self._structures = (None, None) if is_flat else program.structures
        self._attributes = dict(program.lifted.attributes)
        self._are_replaced = False
        # Until the first call: it keeps the program's own tensors alive.
        self._with_copies: Callable[[], None] | None = None
        self._broken_constants: dict[str, list[str]] = {}
        self._is_foreign = False
        self._unchecked = ""
        if program.lifted.changes_itself:
            self._unchecked = "it changes its own buffers, so that no two calls are alike"
            if program.instructions.backend:
                # It stands in for the package, which has buffers of its own.
                self._attributes = {k: v.clone() for k, v in self._attributes.items()}

    def replace_constants(self, new: NewConstants) -> None:
        """From now on the package has other constants."""
        self._broken_constants.update(new.broken)
        if self._graph.calls == 0 and any(map(is_about_view, _all_texts(new.broken))):
            self._with_copies = new.with_copies
        names = {target: name for name, target in self._program.lifted.named.items()}
        self._are_replaced = True
        for target, value in new.given.items():
            if target in names and not _is_alike(value, self._attributes[names[target]]):
                self._is_foreign = True
                self._unchecked = f"its constant {target} was replaced by another kind of tensor"
            elif new.shared or target not in names:
                self._unchecked = f"its constant {target} was replaced"
            else:
                self._attributes[names[target]] = value.detach().clone()

    def taking_views(self, texts: Sequence[str]) -> AbstractContextManager[None]:
        """Torch takes new constants in the block, which it may not survive."""
        notes = CallNotes(self._program.compile_id)
        return notes.taking_views(self._graph.calls + 1, f"{'; '.join(texts)}{_called_at()}")

    def lose_constants(self) -> None:
        """What constants the package has is no longer known."""
        self._unchecked = "the program took its constants into its own hands"

    def reject_constants(self, broken: Sequence[str], error: Exception) -> None:
        """Torch has raised an error instead of taking new constants."""
        notes = CallNotes(self._program.compile_id)
        note_rejected(notes, self._graph.calls + 1, broken, error)

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        flat: list[Any] = []
        SCOPE.guard(lambda: flat.extend(self._inputs_of_graph(args, kwargs)))
        stand_in = stand_in_of(self._program)
        if flat and stand_in:
            return self._in_eager(flat, moved=stand_in == MOVED)
        if flat:
            SCOPE.guard(self._check, function, flat)
        self._with_copies = None
        return function(*args, **kwargs)

    def _inputs_of_graph(self, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        """The inputs of a call in the order of the graph; none if torch will not take them."""
        given = flat_inputs(self._structures[0], args, kwargs)
        if not self._is_flat:
            return given
        # A loader is given tensors alone: whatever else was exported, the package has in itself.
        examples = self._program.examples
        expected = sum(isinstance(value, torch.Tensor) for value in examples)
        if len(given) != expected:
            got = count_of(len(given), "tensor")
            self._skip([], f"it was called with {got}; the program takes {expected}")
            return []
        tensors = iter(given)
        return [next(tensors) if isinstance(v, torch.Tensor) else v for v in examples]

    def _check(self, function: Callable[..., Any], flat: Sequence[Any]) -> None:
        changed = self._program.lifted.changed_since
        if changed and not self._are_replaced and not self._unchecked:
            self._unchecked = f"{changed} was changed after the package was made"
        if self._unchecked:
            # Other strides alone may do no harm, which only a comparison shows.
            broken = _all_texts(self._broken_constants) if self._is_foreign else []
            self._skip(broken, self._unchecked)
            return
        self._graph.compiled = lambda *values: self._on_flat(function, values)
        texts = broken_texts(self._guards, flat, input_names(self._graph.module))
        texts += _all_texts(self._broken_constants)
        self._graph.admits = self._admits
        self._graph.outside = f"{'; '.join(texts)}{_called_at()}" if texts else ""
        # A package has its types, and computes no gradients, whatever the program has set.
        with torch.no_grad(), torch._C._DisableAutocast():
            if texts and all(map(is_about_view, texts)) and self._graph.calls == 0:
                self._try_copies(self._inputs(flat))
            self._graph.check(self._inputs(flat))

    def _try_copies(self, values: tuple[Any, ...]) -> None:
        """Whether the first call is right with the same constants in memory of their own.

        Before that call, which may kill the process.
        """
        module, compiled, give = self._graph.module, self._graph.compiled, self._with_copies
        if compiled is None or give is None or not can_fork_alone():
            return

        def work() -> bool:
            give()
            return is_right(module, compiled, values) is True

        if Forks(workers=1).ask(work).result is True:
            notes = CallNotes(self._program.compile_id)
            notes.checked(1, RIGHT_WITH_COPIES, "compared with eager")

    def _admits(self, values: Sequence[Any]) -> bool:
        """Whether the package's own code says that it takes these inputs."""
        flat = values[: len(values) - len(self._attributes)]
        return self._guards is not None and not broken_texts(self._guards, flat, ())

    def _inputs(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        detached = [v.detach() if isinstance(v, torch.Tensor) else v for v in flat]
        return (*detached, *self._attributes.values())

    def _on_flat(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        from torch.utils._pytree import tree_leaves, tree_unflatten

        flat = list(values[: len(values) - len(self._attributes)])
        args, kwargs = (flat, {})
        if self._is_flat:
            args = [value for value in flat if isinstance(value, torch.Tensor)]
        elif self._structures[0] is not None:
            args, kwargs = tree_unflatten(flat, self._structures[0])
        returned = tree_leaves(function(*args, **kwargs), is_leaf=lambda item: item is None)
        return tuple(returned[place] for place in self._program.lifted.compared)

    def _in_eager(self, flat: Sequence[Any], *, moved: bool) -> Any:
        from torch.utils._pytree import tree_unflatten

        module = self._program.lifted.whole
        with plain_torch():
            function = with_perturbed_rounding(module) if moved else module
            returned = [_as_package(item) for item in function(*self._inputs(flat))]
        structure = self._structures[1]
        return returned if structure is None else tree_unflatten(returned, structure)

    def _skip(self, broken: list[str], why: str) -> None:
        self._graph.calls += 1
        if self._graph.calls > self._program.instructions.calls:
            return
        notes = CallNotes(self._program.compile_id)
        if broken:
            notes.checked(self._graph.calls, OUTSIDE, f"{'; '.join(broken)}{_called_at()}")
        notes.checked(self._graph.calls, "skipped", why)


def note_rejected(notes: CallNotes, call: int, broken: Sequence[str], error: Exception) -> None:
    """What is wrong with constants that torch does not take, if something is."""
    if broken:
        notes.checked(call, OUTSIDE, f"{'; '.join(broken)}{_called_at()}")
        first = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        notes.checked(call, REJECTED, f"load_constants raised {first[:200]}")


def stand_in_of(program: CompiledProgram) -> str:
    """What the calls of a package are replaced by; empty if it is called itself."""
    backend = program.instructions.backend
    return backend if backend in ("eager", MOVED) else ""


def flat_inputs(structure: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a call in the order of the graph; none if they are not as exported."""
    from torch.export._tree_utils import reorder_kwargs
    from torch.utils._pytree import tree_flatten

    ordered = kwargs if structure is None else reorder_kwargs(kwargs, structure)
    values, given = tree_flatten((args, ordered))
    is_as_exported = structure is None or given == structure
    return list(values) if is_as_exported else []  # Otherwise torch says what is wrong.


def structure_of(model: Any) -> Any:
    """How the arguments of a loaded package are nested."""
    from torch.utils._pytree import treespec_loads

    return treespec_loads(model.loader.get_call_spec()[0])


def _as_package(item: Any) -> Any:
    """A package returns numbers as tensors."""
    is_number = isinstance(item, (bool, int, float))
    return torch.tensor(item) if is_number else item


# --- what a package demands of its inputs ---------------------------------------------------------


def broken_texts(
    guards: PackageGuards | None, values: Sequence[Any], names: Sequence[str]
) -> list[str]:
    """What inputs break of what a package demands; `names` are what the program calls them."""
    tensors = [n for n, value in enumerate(values) if isinstance(value, torch.Tensor)]
    found = broken(guards, [_facts(values[n]) for n in tensors]) if guards is not None else ()
    own = [names[n] for n in tensors if n < len(names)]
    return [
        each.text.replace(f"({each.name})", f"({own[each.input]})")
        if 0 <= each.input < len(own)
        else each.text
        for each in found
        if not each.is_harmless
    ]


def guards_of(path: Any, name: str | None) -> PackageGuards | None:
    """What a package demands of its inputs, as its own code says; None if it does not."""
    try:
        wrapper = read_package(Path(path), verify=False).model(name).wrapper
    except InductoscopeError:
        return None
    return None if wrapper is None else wrapper.guards


def constants_of(path: Any, name: str | None) -> tuple[PackagedConstant, ...]:
    """The constants of a package, as its own code has them."""
    try:
        wrapper = read_package(Path(path), verify=False).model(name).wrapper
    except InductoscopeError:
        return ()
    return () if wrapper is None else wrapper.constants


def broken_constants(
    constants: Sequence[PackagedConstant], given: Mapping[str, torch.Tensor], *, is_copied: bool
) -> BrokenConstants:
    """What is wrong with tensors that are put in the place of a package's constants, by name."""
    known = {constant.name: constant for constant in constants}
    return {
        name: list(broken_demands(known[name], _constant_facts(value), is_copied=is_copied))
        for name, value in given.items()
        if name in known
    }


def _all_texts(broken: BrokenConstants) -> list[str]:
    return [text for texts in broken.values() for text in texts]


def _constant_facts(value: torch.Tensor) -> ConstantFacts:
    return ConstantFacts(
        str(value.dtype).removeprefix("torch."),
        tuple(value.shape),
        tuple(value.stride()),
        value.device.type,
        value.storage_offset(),
        value.untyped_storage().nbytes(),
    )


def _is_alike(value: torch.Tensor, before: torch.Tensor) -> bool:
    return (value.shape, value.dtype, value.device) == (before.shape, before.dtype, before.device)


def _facts(value: torch.Tensor) -> InputFacts:
    return InputFacts(
        str(value.dtype).removeprefix("torch."),
        tuple(value.shape),
        tuple(value.stride()),
        str(value.device),
    )


def _called_at() -> str:
    file, line = calling_line()
    return f" (called at {file}:{line})" if file else ""
