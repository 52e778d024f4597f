"""How much memory is free where the inputs of a graph are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from inductoscope.processes.status import free_memory


def free_memory_for(values: Sequence[Any]) -> int:
    """Bytes that are free in main memory, and on the GPU if a value is there: the lesser."""
    free = [free_memory()]
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    for device in devices:
        if device.type == "cuda":
            kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            free.append(torch.cuda.mem_get_info(device)[0] + kept)
    return min(free)
