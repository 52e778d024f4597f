"""Gives results of a compiled graph the strides of eager's, and lets them share memory like those.

A program that fails because of how a result lies in memory ends well then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.values import copy_values, is_plain, same_generators
from inductoscope.model.entities import NotedDifference


def call_as_in_eager(
    module: GraphModule,
    compiled: Callable[..., Any],
    arguments: Sequence[Any],
    wanted: Sequence[NotedDifference],
) -> Any:
    """Call a compiled graph, and lay out the wanted outputs as eager does."""
    copies = copy_values(arguments)
    with same_generators(), torch.no_grad():
        eager = EagerResults(tree_leaves(as_function(module)(*copies)), copies)
    results, form = tree_flatten(compiled(*arguments))
    return tree_unflatten(laid_out(results, arguments, eager, wanted), form)


@dataclass(frozen=True)
class EagerResults:
    """The outputs of eager, and the copies of the inputs that it ran on."""

    outputs: Sequence[Any]
    inputs: Sequence[Any]


def laid_out(
    results: Sequence[Any],
    inputs: Sequence[Any],
    eager: EagerResults,
    wanted: Sequence[NotedDifference],
) -> list[Any]:
    """The results, with the wanted ones laid out in memory as in eager."""
    numbers: dict[str, set[int]] = {"stride": set(), "sharing": set()}
    for note in wanted:
        kind, _, text = note.where.partition(" ")
        if kind == "output" and text.isdigit() and int(text) < len(results):
            numbers[note.aspect].add(int(text))
    made = _Layout(list(results), inputs, eager)
    for number in sorted(numbers["stride"]):
        made.give_strides(number)
    for number in sorted(numbers["sharing"]):
        made.share(number)
    return made.results


@dataclass
class _Layout:
    """Results that are given eager's layout one by one."""

    results: list[Any]
    inputs: Sequence[Any]
    eager: EagerResults
    # New memory for outputs that share it in eager, by eager's storage.
    _memories: dict[int, torch.Tensor] = field(default_factory=dict)

    def give_strides(self, number: int) -> None:
        """Copy a result into memory with eager's strides; gradients pass through."""
        result, like = self.results[number], self.eager.outputs[number]
        if _is_alike(result, like) and result.stride() != like.stride():
            self.results[number] = _copied(result, like)

    def share(self, number: int) -> None:
        """Let a result share memory with the inputs and outputs that it shares it with in eager."""
        result, like = self.results[number], self.eager.outputs[number]
        if not _is_alike(result, like):
            return
        for source, copy in zip(self.inputs, self.eager.inputs, strict=True):
            if _is_alike(source, copy) and copy.dtype == like.dtype and _share(copy, like):
                self.results[number] = source if copy is like else _view(source, like)
                return
        others = [
            other
            for other, value in enumerate(self.eager.outputs)
            if other != number and is_plain(value) and _share(value, like)
        ]
        if not others:
            self.results[number] = _copied(result, like)
            return
        self._share_outputs(sorted([number, *others]))

    def _share_outputs(self, numbers: Sequence[int]) -> None:
        """Put outputs that share memory in eager into one new memory."""
        first = self.eager.outputs[numbers[0]]
        key = first.untyped_storage()._cdata
        if key in self._memories:
            return
        count = first.untyped_storage().nbytes() // first.element_size()
        memory = torch.zeros(count, dtype=first.dtype, device=first.device)
        self._memories[key] = memory
        alike = [
            number
            for number in numbers
            if _is_alike(self.results[number], self.eager.outputs[number])
            and self.eager.outputs[number].dtype == first.dtype
        ]
        for number in alike:
            _view(memory, self.eager.outputs[number]).copy_(self.results[number])
        views: dict[int, torch.Tensor] = {}
        for number in alike:
            like = self.eager.outputs[number]
            self.results[number] = views.setdefault(id(like), _view(memory, like))


def _is_alike(one: Any, two: Any) -> bool:
    return is_plain(one) and is_plain(two) and one.shape == two.shape and one.dtype == two.dtype


def _share(one: torch.Tensor, two: torch.Tensor) -> bool:
    return (
        bool(one.untyped_storage().nbytes())
        and one.untyped_storage()._cdata == two.untyped_storage()._cdata
    )


def _copied(result: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    fresh = torch.empty_strided(
        like.size(), like.stride(), dtype=result.dtype, device=result.device
    )
    return fresh.copy_(result)


def _view(memory: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return memory.as_strided(like.size(), like.stride(), like.storage_offset())
