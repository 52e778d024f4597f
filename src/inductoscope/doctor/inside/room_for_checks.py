"""Whether a call can be made once more beside the program's own: values, and room for copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from inductoscope.doctor.compare.values import size_in_bytes
from inductoscope.processes.status import free_memory

TORCH_NAMES = {
    "torch._subclasses.fake_tensor": ("FakeTensor",),
}

# A check needs several copies of the inputs; the program itself needs memory, too.
_COPIES = 4
_PART_OF_MEMORY = 0.25


def is_traced(arguments: Sequence[Any]) -> bool:
    """Whether the call is itself being traced, with tensors that have no data."""
    from torch._subclasses.fake_tensor import FakeTensor

    return torch.compiler.is_compiling() or any(isinstance(a, FakeTensor) for a in arguments)


def has_room_for_copies(arguments: Sequence[Any]) -> bool:
    """Whether the inputs of a call fit into memory several times more."""
    needed = _COPIES * size_in_bytes(arguments)
    return needed <= _PART_OF_MEMORY * _free_memory_for(arguments)


def _free_memory_for(values: Sequence[Any]) -> int:
    """Bytes that are free in main memory, and on the GPU if a value is there: the lesser."""
    free = [free_memory()]
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    for device in devices:
        if device.type == "cuda":
            kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            free.append(torch.cuda.mem_get_info(device)[0] + kept)
    return min(free)
