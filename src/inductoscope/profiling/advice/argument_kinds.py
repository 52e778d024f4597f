"""Inside the program: which calls of a function do the same work.

Calls are alike if their arguments have the same shapes, types and places in memory order, their
plain values are equal, and torch is in the same mode. What cannot be looked into counts as
different from everything else.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_PLAIN = (int, float, complex, bool, str, bytes, type(None))
# How deep results are searched for tensors.
_DEPTH = 4


def kind_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...] | None:
    """Equal for calls that do the same work; None for arguments that do not say what they are."""
    with contextlib.suppress(Exception):  # Tensors of other libraries refuse the one or other.
        return _kind_of_call(function, args, kwargs)
    return None


def _kind_of_call(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    torch: Any = sys.modules["torch"]
    modes = torch.is_grad_enabled(), torch.is_autocast_enabled()
    original = getattr(function, "_torchdynamo_orig_callable", function)
    training = getattr(getattr(original, "__self__", None), "training", None)
    return (*modes, training, _kind(torch, args), _kind(torch, kwargs))


def _kind(torch: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _kind_of_tensor(torch, value)
    if isinstance(value, _PLAIN):
        return type(value), value if value == value else "nan"
    if isinstance(value, (list, tuple)):
        return (type(value), *(_kind(torch, part) for part in value))
    if isinstance(value, Mapping):
        return (type(value), *((str(key), _kind(torch, part)) for key, part in value.items()))
    return type(value), id(value)


def _kind_of_tensor(torch: Any, tensor: Any) -> Any:
    strides = tensor.stride() if tensor.layout == torch.strided else tensor.layout
    return (
        type(tensor),
        tensor.dtype,
        tensor.device,
        tuple(tensor.shape),
        strides,
        (tensor.requires_grad),
    )


def requires_grad(result: Any) -> bool:
    """Whether a result can be differentiated, or may hold something that can."""
    with contextlib.suppress(Exception):
        return _requires_grad(result, 0)
    return True


def _requires_grad(result: Any, depth: int) -> bool:
    torch: Any = sys.modules["torch"]
    if isinstance(result, torch.Tensor):
        return bool(result.requires_grad)
    if isinstance(result, _PLAIN) or not torch.is_grad_enabled():
        return False
    if depth >= _DEPTH:
        return True
    if isinstance(result, Mapping):
        parts = list(result.values())
    elif isinstance(result, (list, tuple)):
        parts = list(result)
    else:
        parts = list(getattr(result, "__dict__", {}).values())
    return any(_requires_grad(part, depth + 1) for part in parts)
