"""Gives results of a compiled graph the strides of eager's, and lets them share memory like those.

A program that fails because of how a result lies in memory ends well then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.values import copy_values, is_plain, same_generators
from inductoscope.recording.events import NotedDifference


def call_as_in_eager(
    module: GraphModule,
    compiled: Callable[..., Any],
    arguments: Sequence[Any],
    wanted: Sequence[NotedDifference],
) -> Any:
    """Call a compiled graph, and lay out the wanted outputs as eager does."""
    copies = copy_values(arguments)
    with same_generators(), torch.no_grad():
        eager = tree_leaves(as_function(module)(*copies))
    results, form = tree_flatten(compiled(*arguments))
    for number, aspects in sorted(_numbers(wanted).items()):
        if number >= len(results) or not _is_alike(results[number], eager[number]):
            continue
        owner = _owner(eager[number], arguments, copies) if "sharing" in aspects else None
        if owner is not None:
            results[number] = owner
        else:
            _lay_out(results, eager, number, with_others="sharing" in aspects)
    return tree_unflatten(results, form)


def _numbers(wanted: Sequence[NotedDifference]) -> dict[int, set[str]]:
    """The numbers of the wanted outputs, each with what is wanted of it."""
    found: dict[int, set[str]] = {}
    for note in wanted:
        kind, _, number = note.where.partition(" ")
        if kind == "output" and number.isdigit():
            found.setdefault(int(number), set()).add(note.aspect)
    return found


def _owner(like: torch.Tensor, inputs: Sequence[Any], copies: Sequence[Any]) -> Any:
    """The input that an output of eager is, or the view of it that the output is; or None."""
    for source, copy in zip(inputs, copies, strict=True):
        if _is_alike(source, copy) and copy.dtype == like.dtype and _share(copy, like):
            return source if copy is like else _view(source, like)
    return None


def _lay_out(results: list[Any], eager: Sequence[Any], number: int, *, with_others: bool) -> None:
    """Copy a result into memory laid out as in eager; gradients pass through.

    With others, the outputs that share memory with it in eager get the same memory.
    """
    like = eager[number]
    together = [
        other
        for other, value in enumerate(eager)
        if other == number
        or (with_others and _is_alike(results[other], value) and _share(value, like))
    ]
    together = [other for other in together if eager[other].dtype == like.dtype]
    count = like.untyped_storage().nbytes() // like.element_size()
    memory = torch.zeros(count, dtype=like.dtype, device=results[number].device)
    for other in together:
        _view(memory, eager[other]).copy_(results[other])
    # What is one object in eager becomes one object.
    views = {id(eager[other]): _view(memory, eager[other]) for other in together}
    for other in together:
        results[other] = views[id(eager[other])]


def _is_alike(one: Any, two: Any) -> bool:
    return is_plain(one) and is_plain(two) and one.shape == two.shape and one.dtype == two.dtype


def _share(one: torch.Tensor, two: torch.Tensor) -> bool:
    storage = one.untyped_storage()
    return bool(storage.nbytes()) and storage._cdata == two.untyped_storage()._cdata


def _view(memory: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return memory.as_strided(like.size(), like.stride(), like.storage_offset())
