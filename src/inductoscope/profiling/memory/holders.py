"""Inside the program: who holds memory now. Weights, their gradients, states of optimizers."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inductoscope.profiling.memory.observed import (
    CONSTANT,
    GRADIENT,
    HELD,
    INPUT,
    STATE,
    WEIGHT,
    HeldMemory,
)
from inductoscope.profiling.memory.unseen import memory_of, unseen

# How deep arguments and states are searched for tensors.
_DEPTH = 4


def held_memory(arguments: Mapping[Any, Any] | None = None) -> tuple[HeldMemory, ...]:
    """Every block of memory that Python can reach, each once, by the most telling holder.

    `arguments` are those of a call, by their position or name.
    """
    found: dict[tuple[str, int], HeldMemory] = {}
    with unseen():
        for tensor, kind, name in _holders(arguments or {}):
            address, size = memory_of(tensor)
            if size:
                block = HeldMemory(address, size, str(tensor.device), kind, name)
                found.setdefault((block.device, address), block)
    return tuple(found.values())


def _holders(arguments: Mapping[Any, Any]) -> Iterator[tuple[Any, str, str]]:
    torch: Any = sys.modules["torch"]
    plain = (torch.Tensor, torch.nn.Parameter)
    # By their types alone: what a program's own objects answer when asked is theirs to say.
    objects = [(thing, type(thing)) for thing in gc.get_objects()]
    modules = [thing for thing, cls in objects if issubclass(cls, torch.nn.Module)]
    tensors = [thing for thing, cls in objects if cls in plain]
    yield from _of_modules(modules)
    yield from _of_weights(tensors, torch.nn.Parameter)
    for thing, cls in objects:
        if issubclass(cls, torch.optim.Optimizer):
            for name, tensor in tensors_in(getattr(thing, "state", None)):
                yield tensor, STATE, f"{cls.__name__} {name}"
    for name, tensor in tensors_in(arguments):
        yield tensor, INPUT, f"argument {name}"
    for tensor in tensors:
        yield tensor, HELD, ""


def _of_modules(modules: Sequence[Any]) -> Iterator[tuple[Any, str, str]]:
    """Those of the outermost modules have the longest names, which say most."""
    for module in sorted(modules, key=lambda module: -len(list(module.modules()))):
        for name, weight in module.named_parameters():
            yield weight, WEIGHT, name
            if weight.grad is not None:
                yield weight.grad, GRADIENT, f"gradient of {name}"
        for name, constant in module.named_buffers():
            yield constant, CONSTANT, name


def _of_weights(tensors: Sequence[Any], parameter: type) -> Iterator[tuple[Any, str, str]]:
    """What is learned outside of a module."""
    for tensor in tensors:
        if tensor.is_leaf and tensor.requires_grad:
            if isinstance(tensor, parameter):
                yield tensor, WEIGHT, ""
            if tensor.grad is not None:
                yield tensor.grad, GRADIENT, ""
            if not isinstance(tensor, parameter):
                yield tensor, WEIGHT, ""


def tensors_in(value: Any, name: str = "", depth: int = _DEPTH) -> Iterator[tuple[str, Any]]:
    """Tensors in lists, tuples and dictionaries, with the way to each."""
    torch: Any = sys.modules["torch"]
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth and isinstance(value, (list, tuple)):
        for number, part in enumerate(value):
            yield from tensors_in(part, f"{name} {number}".strip(), depth - 1)
    elif depth and isinstance(value, Mapping):
        for key, part in value.items():
            is_named = isinstance(key, (str, int))
            yield from tensors_in(part, f"{name} {key}".strip() if is_named else name, depth - 1)
