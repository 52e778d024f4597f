"""Calls of a loaded package: compared with the program that it was made from, if that is known."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from inductoscope.capture.hooks.ahead_of_time import calling_line
from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.compare.graphs import input_names
from inductoscope.doctor.compare.rounding import with_perturbed_rounding
from inductoscope.doctor.inside.call_notes import CallNotes
from inductoscope.doctor.inside.compiled_program import CompiledProgram
from inductoscope.doctor.instructions import MOVED
from inductoscope.errors import InductoscopeError
from inductoscope.packages.guards import InputFacts, PackageGuards, broken
from inductoscope.packages.package import read_package
from inductoscope.recording.events.checking import FROM_ELSEWHERE, OUTSIDE, GraphCall, GraphReturned

TORCH_NAMES = {
    "torch.export._tree_utils": ("reorder_kwargs",),
    "torch.utils._pytree": ("tree_flatten", "tree_leaves", "tree_unflatten"),
}


class CallsFromElsewhere:
    """The calls of a package that this process has not made, so that only its demands are known."""

    def __init__(self, name: str, guards: PackageGuards | None) -> None:
        self._name = f"{FROM_ELSEWHERE}{name}"
        self._guards = guards
        self._calls = 0

    def replace_constants(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Nothing depends on them."""

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        self._calls += 1
        if self._calls == 1:
            SCOPE.guard(self._note, args, kwargs)
        SCOPE.emit(GraphCall(compile=self._name, call=self._calls))
        try:
            return function(*args, **kwargs)
        except Exception as error:
            CallNotes(self._name).checked(self._calls, "error", f"{type(error).__name__}: {error}")
            raise
        finally:
            SCOPE.emit(GraphReturned(compile=self._name, call=self._calls))

    def _note(self, args: Any, kwargs: dict[str, Any]) -> None:
        from torch.utils._pytree import tree_leaves

        notes, values = CallNotes(self._name), tree_leaves((args, kwargs))
        notes.checked(self._calls, "skipped", "it was made elsewhere, so eager cannot be compared")
        texts = broken_texts(self._guards, values, ())
        if texts:
            notes.checked(self._calls, OUTSIDE, f"{'; '.join(texts)}{_called_at()}")


class CheckedCalls:
    """The calls of one loaded package."""

    def __init__(self, program: CompiledProgram, guards: PackageGuards | None) -> None:
        self._program = program
        self._guards = guards
        self._graph = program.new_graph()
        self._structures = program.structures
        self._unchecked = ""
        self._attributes = dict(program.lifted.attributes)

    def replace_constants(self, constants: Mapping[str, torch.Tensor]) -> None:
        """From now on the package has other constants."""
        names = {target: name for name, target in self._program.lifted.named.items()}
        for target, value in constants.items():
            if target in names:
                self._attributes[names[target]] = value.detach().clone()
            else:
                self._unchecked = f"its constant {target} was replaced"

    def __call__(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        flat: list[Any] = []
        SCOPE.guard(lambda: flat.extend(self._flat(args, kwargs)))
        if not flat:
            return function(*args, **kwargs)
        inputs = (*flat, *self._attributes.values())
        stand_in = self._program.instructions.backend
        if stand_in in ("eager", MOVED):
            return self._in_eager(inputs, moved=stand_in == MOVED)
        if self._graph.calls == 1 and self._program.lifted.changes_itself:
            self._unchecked = "it changes its own buffers, so later calls find other ones"
        if self._unchecked:
            self._skip()
        else:
            self._graph.compiled = lambda *values: self._on_flat(function, values)
            self._graph.outside = self._broken(flat)
            self._graph.check(inputs)
        return function(*args, **kwargs)

    def _broken(self, flat: Sequence[Any]) -> str:
        """What the inputs break of what the package was made for, and whose call it is."""
        texts = broken_texts(self._guards, flat, input_names(self._graph.module))
        return f"{'; '.join(texts)}{_called_at()}" if texts else ""

    def _flat(self, args: Any, kwargs: dict[str, Any]) -> list[Any]:
        from torch.export._tree_utils import reorder_kwargs
        from torch.utils._pytree import tree_flatten

        given = self._structures[0]
        ordered = kwargs if given is None else reorder_kwargs(kwargs, given)
        values, structure = tree_flatten((args, ordered))
        is_as_exported = given is None or structure == given
        return list(values) if is_as_exported else []  # Otherwise torch says what is wrong.

    def _on_flat(self, function: Callable[..., Any], values: Sequence[Any]) -> Any:
        from torch.utils._pytree import tree_leaves, tree_unflatten

        flat = list(values[: len(values) - len(self._attributes)])
        args, kwargs = (flat, {})
        if self._structures[0] is not None:
            args, kwargs = tree_unflatten(flat, self._structures[0])
        returned = tree_leaves(function(*args, **kwargs))
        return tuple(value for value in returned if isinstance(value, torch.Tensor))

    def _in_eager(self, inputs: tuple[Any, ...], *, moved: bool) -> Any:
        from torch.utils._pytree import tree_unflatten

        module = self._graph.module
        returned = list((with_perturbed_rounding(module) if moved else module)(*inputs))
        structure = self._structures[1]
        return returned if structure is None else tree_unflatten(returned, structure)

    def _skip(self) -> None:
        self._graph.calls += 1
        if self._graph.calls > self._program.instructions.calls:
            return
        notes = CallNotes(self._program.compile_id)
        notes.checked(self._graph.calls, "skipped", self._unchecked)


# --- what a package demands of its inputs ---------------------------------------------------------


def guards_of(path: Any, name: str | None) -> PackageGuards | None:
    """What a package demands of its inputs, as its own code says; None if it does not."""
    try:
        wrapper = read_package(Path(path), verify=False).model(name).wrapper
    except InductoscopeError:
        return None
    return None if wrapper is None else wrapper.guards


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
