"""The program's own arguments, kept for timing its graphs alone.

How long a gather takes depends on where it reads, and how long a branch takes on the values. Graphs
that are timed alone are therefore called with what the program gave its compiled functions. It lies
in a private folder until the trials have ended.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = "inputs"

# Bytes that are kept of one process; what does not fit is made up.
_MOST_BYTES = 256 << 20
# How deep arguments are searched for tensors.
_DEPTH = 4

# What has to be equal for a tensor to stand for an input of a graph.
Form = tuple[Any, ...]


class KeptInputs:
    """Inside the program: writes the arguments of calls, one of each form."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forms: set[Form] = set()
        self._bytes = 0

    def keep(self, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Write what is new among these arguments; called before they are used, and may change."""
        torch: Any = sys.modules["torch"]
        found = [tensor for tensor in _tensors((args, kwargs), 0) if self._wants(tensor)]
        if not found:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"{os.getpid()}-{len(self._forms)}.pt"
        copies = [copy for tensor in found if (copy := _on_cpu(tensor)) is not None]
        torch.save(copies, self._folder / name)

    def _wants(self, tensor: Any) -> bool:
        form, size = form_of(tensor), tensor.numel() * tensor.element_size()
        if form in self._forms or self._bytes + size > _MOST_BYTES:
            return False
        self._forms.add(form)
        self._bytes += size
        return True


def _tensors(value: Any, depth: int) -> Iterator[Any]:
    torch: Any = sys.modules["torch"]
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        if value.layout == torch.strided and value.device.type in ("cpu", "cuda"):
            yield value
        return
    if depth < _DEPTH and isinstance(value, (tuple, list, Mapping)):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(part, depth + 1)


def _on_cpu(tensor: Any) -> Any:
    """Its values with its strides; None for a view that has elements in common with itself."""
    torch: Any = sys.modules["torch"]
    made = torch.empty_strided(tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype)
    with contextlib.suppress(RuntimeError):
        return made.copy_(tensor.detach())
    return None


def form_of(tensor: Any) -> Form:
    """The type, shape and strides of a tensor."""
    shape, strides = tuple(map(int, tensor.shape)), tuple(map(int, tensor.stride()))
    return str(tensor.dtype), shape, strides


def kept_inputs(folder: Path) -> dict[Form, Any]:
    """What was kept, by its form; what cannot be read is left out."""
    torch: Any = sys.modules["torch"]
    found: dict[Form, Any] = {}
    for path in sorted(folder.glob("*.pt")):
        with contextlib.suppress(Exception):  # The program may have been ended while it wrote.
            for tensor in torch.load(path, weights_only=True):
                found.setdefault(form_of(tensor), tensor)
    return found
