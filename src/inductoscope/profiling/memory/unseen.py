"""Inside the program: looks at tensors in a way that the program's own modes do not see."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from inductoscope.capture.scope import BROKEN, SCOPE

TORCH_NAMES = {
    "torch._C": ("DisableTorchFunction",),
    "torch.utils._python_dispatch": ("_disable_current_modes",),
}


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Inside, no mode of the program is told of what is done, and autograd keeps nothing of it."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch._C.DisableTorchFunction(), torch.no_grad():
        yield


def memory_of(tensor: Any) -> tuple[int, int]:
    """Where the memory of a tensor begins, and its bytes; nothing for what has none of its own."""
    found = SCOPE.attempt(_storage, tensor)
    return (0, 0) if found is BROKEN else found


def _storage(tensor: Any) -> tuple[int, int]:
    import torch

    with torch._C.DisableTorchFunction():
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()


def is_plain(tensor: Any) -> bool:
    """Whether it is torch's own tensor: what a program's own kind answers is its business."""
    import torch

    return type(tensor) in (torch.Tensor, torch.nn.Parameter)
