"""Calls of a loaded package, compared with the program that it was made from, if known."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch.export._tree_utils import reorder_kwargs
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten, treespec_loads

from inductoscope.doctor.instructions import MOVED
from inductoscope.errors import InductoscopeError
from inductoscope.inside.compare.collectives import ANSWERED_COLLECTIVES
from inductoscope.inside.compare.graphs import input_names
from inductoscope.inside.compare.reference import with_perturbed_rounding
from inductoscope.inside.compare.values import plain_torch
from inductoscope.inside.doctor.checked_graph import CallNotes
from inductoscope.inside.doctor.exported_program import CompiledProgram
from inductoscope.inside.hooks.aot_inductor import calling_line
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.forks import Forks, can_fork
from inductoscope.inside.search.other_sizes import is_right
from inductoscope.packages.constants import ConstantFacts, broken_demands, is_about_view
from inductoscope.packages.package import read_package
from inductoscope.recording.events import FROM_ELSEWHERE, OUTSIDE, REJECTED, RIGHT_WITH_COPIES
from inductoscope.torch_facts.package_wrappers import InputFacts, broken
from inductoscope.wording import count_of

# A server may call its package for days.
_MOST_CALLS_NOTED = 1000


@dataclass(frozen=True)
class NewConstants:
    """Tensors that replace a package's constants, by name."""

    given: Mapping[str, torch.Tensor]
    # Whether the package uses them at once, and copies them.
    is_used: bool = True
    is_copied: bool = True
    # Gives the package copies of the same constants; called in a fork.
    with_copies: Callable[[], None] | None = None
    # The problems of each constant; an empty list if there are none.
    broken: Mapping[str, list[str]] = field(default_factory=dict)

    @property
    def texts(self) -> list[str]:
        """All problems with the new constants."""
        return [text for texts in self.broken.values() for text in texts]


class Demands:
    """The demands of a package on its inputs and constants, as its generated code checks them."""

    def __init__(self, path: Any, name: str | None) -> None:
        self._path, self._name = path, name

    @cached_property
    def _wrapper(self) -> Any:
        try:
            return read_package(Path(self._path), verify=False).model(self._name).wrapper
        except InductoscopeError:
            return None

    @property
    def are_known(self) -> bool:
        """Whether the package states what inputs it accepts."""
        return self._wrapper is not None and self._wrapper.guards is not None

    def broken_by(self, values: Sequence[Any], names: Sequence[str] = ()) -> list[str]:
        """Return the demands that inputs break; `names` are the program's names for the inputs."""
        if not self.are_known:
            return []
        tensors = [n for n, value in enumerate(values) if isinstance(value, torch.Tensor)]
        own = [names[n] for n in tensors if n < len(names)]
        return [
            each.text.replace(f"({each.name})", f"({own[each.input]})")
            if 0 <= each.input < len(own)
            else each.text
            for each in broken(self._wrapper.guards, [_input_facts(values[n]) for n in tensors])
            if not each.is_harmless
        ]

    def judged(self, new: NewConstants) -> NewConstants:
        """Return the new constants with the problems of each that the package has."""
        constants = () if self._wrapper is None else self._wrapper.constants
        found = {
            known.name: list(
                broken_demands(
                    known, _constant_facts(new.given[known.name]), is_copied=new.is_copied
                )
            )
            for known in constants
            if known.name in new.given
        }
        return replace(new, broken=found)


class PackageCalls:
    """The calls of one loaded package, and the constants that it is given."""

    def __init__(self, name: str, demands: Demands) -> None:
        self._name = name
        self._notes = CallNotes(name)
        self._demands = demands
        self._broken_constants: dict[str, list[str]] = {}

    @property
    def calls(self) -> int:
        """The number of calls so far."""
        raise NotImplementedError

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Call the package, and check or note the call."""
        raise NotImplementedError

    def judge_constants(self, new: NewConstants) -> NewConstants:
        """Judge constants that the package is about to be given."""
        return self._demands.judged(new)

    def taking(self, new: NewConstants) -> AbstractContextManager[None]:
        """Record, before torch takes new constants, which of them are views that it mishandles.

        Torch may write past the end of its own constants, which kills the process sooner or later.
        """
        views = [text for text in new.texts if is_about_view(text)]
        if not views:
            return contextlib.nullcontext()
        self._notes.checked(self.calls + 1, OUTSIDE, _at_call(views))
        return self._notes.calling(self.calls + 1)

    def replace_constants(self, new: NewConstants) -> None:
        """Record that the package has new constants."""
        if new.is_used:
            self._broken_constants.update(new.broken)

    def reject_constants(self, new: NewConstants, error: Exception) -> None:
        """Record that torch rejected new constants, since its error hardly says why."""
        if new.texts:
            self._notes.checked(self.calls + 1, OUTSIDE, _at_call(new.texts))
            first = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            self._notes.checked(self.calls + 1, REJECTED, f"load_constants raised {first[:200]}")

    def _broken(self, values: Sequence[Any], names: Sequence[str] = ()) -> list[str]:
        """Return all demands of the package that a call breaks."""
        return self._demands.broken_by(values, names) + self._texts_of_constants

    @property
    def _texts_of_constants(self) -> list[str]:
        return [text for texts in self._broken_constants.values() for text in texts]


class CallsFromElsewhere(PackageCalls):
    """The calls of a package made by another process, of which only its demands are known."""

    def __init__(self, name: str, demands: Demands, structure: Any) -> None:
        super().__init__(f"{FROM_ELSEWHERE}{name}", demands)
        self._structure = structure
        self._calls = 0
        self._has_broken = False

    @property
    def calls(self) -> int:
        return self._calls

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        self._calls += 1
        if self._calls > _MOST_CALLS_NOTED:
            return function(*args, **kwargs)
        SCOPE.guard(self._note, args, kwargs)
        try:
            with self._notes.calling(self._calls):
                return function(*args, **kwargs)
        except Exception as error:
            self._notes.checked(self._calls, "error", f"{type(error).__name__}: {error}")
            raise

    def _note(self, args: Any, kwargs: dict[str, Any]) -> None:
        if self._calls == 1:
            known = "" if self._demands.are_known else ", and it does not say what it accepts"
            why = f"it was made elsewhere, so there is no program to compare it with{known}"
            self._notes.checked(1, "skipped", why)
        texts = self._broken(flat_inputs(self._structure, args, kwargs))
        if texts and not self._has_broken:
            self._has_broken = True
            self._notes.checked(self._calls, OUTSIDE, _at_call(texts))


class CheckedCalls(PackageCalls):
    """The calls of a package that this process has compiled."""

    def __init__(
        self, program: CompiledProgram, demands: Demands, *, is_flat: bool = False
    ) -> None:
        """Set up; `is_flat` means calls with a list of tensors, as torch's loader takes them."""
        super().__init__(program.compile_id, demands)
        self._program = program
        self._graph = program.new_graph()
        self._is_flat = is_flat
        self._structures = (None, None) if is_flat else program.structures
        self._attributes = dict(program.lifted.attributes)
        self._are_replaced = False
        # Dropped after the first call, since it keeps the program's own tensors alive.
        self._with_copies: Callable[[], None] | None = None
        # Whether a constant has changed shape, dtype or device; why calls are not compared.
        self._is_foreign = False
        self._unchecked = ""
        if program.lifted.changes_itself:
            self._unchecked = "it changes its own buffers, so that no two calls are alike"
            if program.instructions.backend:
                # The program stands in for the package, which has buffers of its own.
                self._attributes = {k: v.clone() for k, v in self._attributes.items()}

    @property
    def calls(self) -> int:
        return self._graph.calls

    def replace_constants(self, new: NewConstants) -> None:
        super().replace_constants(new)
        if self.calls == 0 and new.is_used and any(map(is_about_view, new.texts)):
            self._with_copies = new.with_copies
        names = {target: name for name, target in self._program.lifted.named.items()}
        self._are_replaced = True
        for target, value in new.given.items():
            name = names.get(target, "")
            if name and not _is_alike(value, self._attributes[name]):
                self._is_foreign = True
                self._unchecked = f"its constant {target} was replaced by another kind of tensor"
            elif name and new.is_used and new.is_copied:
                self._attributes[name] = value.detach().clone()
            else:
                # The program may change the tensor later, or the constant is inactive.
                self._unchecked = f"its constant {target} was replaced"

    def lose_constants(self) -> None:
        """Stop comparing calls, because the package's constants are no longer known."""
        self._unchecked = "the program took its constants into its own hands"

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
        """Return a call's inputs in graph order; none if torch will reject them."""
        given = flat_inputs(self._structures[0], args, kwargs)
        if not self._is_flat:
            return given
        # A loader gets tensors alone; other exported inputs are constants of the package.
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
            # Different strides may be harmless, which only a comparison shows.
            self._skip(self._texts_of_constants if self._is_foreign else [], self._unchecked)
            return
        self._graph.compiled = lambda *values: self._on_flat(function, values)
        texts = self._broken(flat, input_names(self._graph.module))
        self._graph.admits = self._admits
        self._graph.outside = _at_call(texts) if texts else ""
        # A package has fixed dtypes and no gradients, whatever the program has set.
        with torch.no_grad(), torch._C._DisableAutocast():
            if texts and all(map(is_about_view, texts)) and self.calls == 0:
                self._try_copies(self._inputs(flat))
            self._graph.check(self._inputs(flat))

    def _try_copies(self, values: tuple[Any, ...]) -> None:
        """Check whether the first call is right with copies of the same constants.

        This runs before that call, which may kill the process.
        """
        module, compiled, give = self._graph.module, self._graph.compiled, self._with_copies
        if compiled is None or give is None or not can_fork():
            return

        def work() -> bool:
            give()
            return is_right(module, compiled, values) is True

        with ANSWERED_COLLECTIVES.answering():
            answer = Forks(workers=1).ask(work)
        if answer.result is True:
            self._notes.checked(1, RIGHT_WITH_COPIES, "compared with eager")

    def _admits(self, values: Sequence[Any]) -> bool:
        """Check whether the package's generated code accepts these inputs."""
        flat = values[: len(values) - len(self._attributes)]
        return self._demands.are_known and not self._demands.broken_by(flat)

    def _inputs(self, flat: Sequence[Any]) -> tuple[Any, ...]:
        detached = [v.detach() if isinstance(v, torch.Tensor) else v for v in flat]
        return (*detached, *self._attributes.values())

    def _on_flat(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        flat = list(values[: len(values) - len(self._attributes)])
        args, kwargs = flat, {}
        if self._is_flat:
            args = [value for value in flat if isinstance(value, torch.Tensor)]
        elif self._structures[0] is not None:
            args, kwargs = tree_unflatten(flat, self._structures[0])
        returned = tree_leaves(function(*args, **kwargs), is_leaf=lambda item: item is None)
        return tuple(returned[place] for place in self._program.lifted.compared)

    def _in_eager(self, flat: Sequence[Any], *, moved: bool) -> Any:
        module = self._program.lifted.whole
        with plain_torch():
            function = with_perturbed_rounding(module) if moved else module
            returned = [_as_package(item) for item in function(*self._inputs(flat))]
        structure = self._structures[1]
        return returned if structure is None else tree_unflatten(returned, structure)

    def _skip(self, broken: list[str], why: str) -> None:
        self._graph.calls += 1
        if self.calls > self._program.instructions.calls:
            return
        if broken:
            self._notes.checked(self.calls, OUTSIDE, _at_call(broken))
        self._notes.checked(self.calls, "skipped", why)


def stand_in_of(program: CompiledProgram) -> str:
    """Return the backend that replaces the calls of a package; empty if there is none."""
    backend = program.instructions.backend
    return backend if backend in ("eager", MOVED) else ""


def flat_inputs(structure: Any, args: Any, kwargs: dict[str, Any]) -> list[Any]:
    """Return a call's arguments in graph order; none if their structure is not as exported."""
    ordered = kwargs if structure is None else reorder_kwargs(kwargs, structure)
    values, given = tree_flatten((args, ordered))
    is_as_exported = structure is None or given == structure
    return list(values) if is_as_exported else []  # If not, torch raises the error.


def structure_of(model: Any) -> Any:
    """Return the tree spec of a loaded package's arguments."""
    return treespec_loads(model.loader.get_call_spec()[0])


def _as_package(item: Any) -> Any:
    """Convert a number to a tensor, as a package returns it."""
    return torch.tensor(item) if isinstance(item, (bool, int, float)) else item


def _facts_of(value: torch.Tensor) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    dtype = str(value.dtype).removeprefix("torch.")
    return dtype, tuple(value.shape), tuple(value.stride())


def _input_facts(value: torch.Tensor) -> InputFacts:
    return InputFacts(*_facts_of(value), str(value.device))


def _constant_facts(value: torch.Tensor) -> ConstantFacts:
    memory = value.storage_offset(), value.untyped_storage().nbytes()
    return ConstantFacts(*_facts_of(value), value.device.type, *memory)


def _is_alike(value: torch.Tensor, before: torch.Tensor) -> bool:
    return (value.shape, value.dtype, value.device) == (before.shape, before.dtype, before.device)


def _at_call(texts: Sequence[str]) -> str:
    """Join texts, and add the line of the program that makes the call."""
    file, line = calling_line()
    return "; ".join(texts) + (f" (called at {file}:{line})" if file else "")
