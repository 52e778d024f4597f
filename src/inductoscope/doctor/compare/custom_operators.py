"""The first custom operator that does not do what it declares.

Every compiler relies on an operator's schema, which says what it mutates, and on its fake
implementation, which says what it returns. If one of them is wrong, some later stage computes a
wrong result. torch's `opcheck` finds out, on the actual arguments of the operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from inductoscope.doctor.compare.values import run

TORCH_NAMES = {
    "torch._library.utils": ("is_builtin",),
    "torch._ops": ("OpOverload",),
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
}

# Namespaces of torch that torch does not count as built in.
_OF_TORCH = (
    "inductor", "_c10d_functional", "c10d", "quantized", "mkldnn", "mkl", "onednn", "profiler",
)  # fmt: skip
_CHECKS = ("test_schema", "test_faketensor")


@dataclass(frozen=True)
class FalseDeclaration:
    """An operator, and what opcheck says about it."""

    operation: str
    text: str


def first_false_declaration(
    function: Callable[..., Any], inputs: Sequence[Any]
) -> FalseDeclaration | None:
    """Run the function and check every operator that is not part of torch."""
    mode = _Check()
    with contextlib.suppress(Exception):  # What was found before the function failed still holds.
        run(function, inputs, backward=False, mode=mode)
    return mode.found


class _Check(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: FalseDeclaration | None = None
        self._seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(func)
        if self.found is None and name not in self._seen and is_custom(func):
            self._seen.add(name)
            self._check(func, name, args, kwargs or {})
        return func(*args, **(kwargs or {}))

    def _check(self, func: Any, name: str, args: Any, kwargs: Any) -> None:
        try:
            said = torch.library.opcheck(
                func, args, kwargs, test_utils=_CHECKS, raise_exception=False
            )
        except Exception:  # opcheck cannot handle this operator.
            return
        for check in _CHECKS:
            if isinstance(said.get(check), Exception):
                self.found = FalseDeclaration(name, f"{name}: {said[check]}"[:500])
                return


def is_custom(func: Any) -> bool:
    """Whether the program or a library, not torch, registered an operator."""
    from torch._library.utils import is_builtin

    is_operator = isinstance(func, torch._ops.OpOverload)
    return is_operator and not is_builtin(func) and func.namespace not in _OF_TORCH
