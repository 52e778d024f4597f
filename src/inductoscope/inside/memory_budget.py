"""The one place that knows how much memory the tool may take, of a device and of the machine.

The program comes first: what the tool takes must not make an allocation of the program fail. So
everything that copies tensors of the program asks here before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.inside.compare.graphs import bytes_of
from inductoscope.inside.compare.values import size_in_bytes
from inductoscope.processes.memory import free_memory, memory_in_use, tightest_limit

# Beside the program, the tool takes at most this part of what the program uses, or so much at
# least, and never more than a part of what is free.
_PART_OF_USED, _LEAST, _PART_OF_FREE = 0.1, 1 << 30, 0.25
_COPIES = 4


def free_on(device: torch.device) -> int:
    """Return the bytes that this process can still allocate on a device."""
    if device.type != "cuda":
        return free_memory()
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free, total = torch.cuda.mem_get_info(device)
    fraction = torch.cuda.get_per_process_memory_fraction(device)
    own_limit = int(total * fraction) - torch.cuda.memory_reserved(device)
    return int(cached + min(free, max(own_limit, 0)))


def has_room_for_copies(values: Sequence[Any], module: GraphModule | None = None) -> bool:
    """Check whether these values may be copied several times, and all that a graph makes of them.

    A check runs the graph in eager, compiled, in float64 and with perturbed rounding.
    """
    needed = _COPIES * size_in_bytes(values) + (0 if module is None else _bytes_made_by(module))
    return all(needed <= _share_of(device) for device in _devices(values))


def has_room_in_main_memory(needed: int) -> bool:
    """Check whether the tool may take so many bytes of main memory for results that it keeps."""
    return needed <= most_of_main_memory()


def most_of_main_memory() -> int:
    """Return the bytes of main memory that the tool may take at most."""
    return free_memory() // 2


def ask_for_main_memory(needed: int) -> None:
    """Raise `MemoryError` unless the tool may take so many bytes of main memory now."""
    if not has_room_in_main_memory(needed):
        raise MemoryError


def what_is_free() -> str:
    """Return how much memory is left to this process, and by whose limit."""
    limit = tightest_limit(os.getpid())
    texts = [f"{max(0, limit.free) >> 20} MiB were free of {limit.name}"]
    if torch.cuda.is_initialized():
        device = torch.device("cuda", torch.cuda.current_device())
        texts.append(f"{free_on(device) >> 20} MiB of GPU {device.index}")
    return ", ".join(texts)


def has_room_to_save(module: GraphModule) -> bool:
    """Check whether main memory may hold all that a graph computes, in float64."""
    return has_room_in_main_memory(_COPIES * _bytes_made_by(module))


def _bytes_made_by(module: GraphModule) -> int:
    return sum(bytes_of(node) for node in module.graph.nodes if node.op != "placeholder")


def give_back() -> None:
    """Return what the allocator caches, because it has grown by what the tool has taken."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _share_of(device: torch.device) -> float:
    used = torch.cuda.memory_allocated(device) if device.type == "cuda" else memory_in_use()
    return min(max(_PART_OF_USED * used, _LEAST), _PART_OF_FREE * free_on(device))


def _devices(values: Iterable[Any]) -> set[torch.device]:
    return {v.device for v in values if isinstance(v, torch.Tensor)} or {torch.device("cpu")}
