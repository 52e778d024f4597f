"""What a whole program needs besides the device: tensors that are fake from the start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

TORCH_NAMES = {
    "torch._subclasses.fake_tensor": ("FakeTensorMode",),
    "torch.nn": ("Module._apply",),
}


def make_every_tensor_fake() -> Any:
    """From now on, in this process. Returns what must be kept alive for it."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    mode.__enter__()
    torch.nn.Module._apply = _apply
    return mode


def _apply(module: Any, function: Callable[[Any], Any], recurse: bool = True) -> Any:
    """`model.to("cuda")`. torch would swap the contents of tensors; fake ones do not allow it."""
    import torch

    for child in module.children() if recurse else ():
        _apply(child, function)
    for name, parameter in module._parameters.items():
        if parameter is not None:
            with torch.no_grad():
                moved = function(parameter)
            module._parameters[name] = torch.nn.Parameter(moved, parameter.requires_grad)
    for name, buffer in module._buffers.items():
        if buffer is not None:
            module._buffers[name] = function(buffer)
    return module
