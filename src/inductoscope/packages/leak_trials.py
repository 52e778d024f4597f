"""Runs in a child process: calls parts of a model alone, to find which of them leaks.

The model is called while every allocation is remembered with its native stack. Then it is called
with the results of its custom operators taken from an earlier call, so that all else is left. Then
each of those operators is called alone, with copies of what the model gave it.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from inductoscope.packages.loading import LoadedModel
from inductoscope.packages.repeating import watch

TORCH_NAMES = {
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
    "torch.utils._pytree": ("tree_map_only",),
}

Say = Callable[..., None]
# One call of an operator: itself, its arguments and what it returned.
OperatorCall = tuple[Any, Any, Any, Any]

REMEMBERED_CALLS = 50


def try_leaks(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """All trials, each reported as soon as it is over."""
    model = LoadedModel(order)
    calls = order["serve"]["calls"]
    _remember_allocations(order, model, inputs)
    say("measured", what="stacks")
    recorded = recorded_calls(order["custom_operators"], lambda: model(inputs))
    if recorded and not any(call[0]._schema.is_mutable for call in recorded):
        rows = watch(lambda: with_answers(recorded, lambda: model(inputs)), calls)
        say("measured", what="without", samples=rows)
    for name in dict.fromkeys(call[0]._schema.name for call in recorded):
        own = [call for call in recorded if call[0]._schema.name == name]
        rows = watch(functools.partial(_again, own), calls)
        say("measured", what="operator", name=name, samples=rows)


def _remember_allocations(
    order: Mapping[str, Any], model: LoadedModel, inputs: Sequence[Any]
) -> None:
    preloaded = ctypes.CDLL(None)
    for _ in range(REMEMBERED_CALLS):  # What is set up once.
        model(inputs)
    preloaded.leaks_begin()
    for _ in range(REMEMBERED_CALLS):
        model(inputs)
    preloaded.leaks_end(order["leaks"].encode())


def recorded_calls(names: Sequence[str], call: Callable[[], Any]) -> list[OperatorCall]:
    """Every call of these operators while `call` runs, with copies of all tensors."""
    from torch.utils._python_dispatch import TorchDispatchMode

    found: list[OperatorCall] = []

    class RecordingCalls(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func._schema.name not in names:
                return func(*args, **(kwargs or {}))
            given = _copied((args, kwargs or {}))
            result = func(*args, **(kwargs or {}))
            found.append((func, *given, _copied(result)))
            return result

    with RecordingCalls():
        call()
    return found


def with_answers(recorded: Sequence[OperatorCall], call: Callable[[], Any]) -> None:
    """Run `call`; operators are not called, but answered with what they returned before."""
    from torch.utils._python_dispatch import TorchDispatchMode

    names = {one[0]._schema.name for one in recorded}
    answers = (_copied(one[3]) for one in recorded)

    class AnsweringCalls(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func._schema.name in names:
                return next(answers)
            return func(*args, **(kwargs or {}))

    with AnsweringCalls():
        call()


def _again(calls: Sequence[OperatorCall]) -> None:
    for function, args, kwargs, _ in calls:
        copied = _copied((args, kwargs))
        function(*copied[0], **copied[1])


def _copied(values: Any) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), values)
