"""The program's settings in torch as lines of a script, as far as a fresh process differs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.torch_state import TorchState

_USUAL_PRECISION = "highest"


def setting_lines(state: TorchState) -> list[str]:
    """What the script sets once."""
    lines = []
    if state.default_dtype != torch.float32:
        lines.append(f"torch.set_default_dtype({state.default_dtype})")
    if state.determinism:
        only_warns = ", warn_only=True" if state.determinism == 1 else ""
        lines.append(f"torch.use_deterministic_algorithms(True{only_warns})")
    if state.precision not in ("", _USUAL_PRECISION):
        lines.append(f"torch.set_float32_matmul_precision({state.precision!r})")
    backends = state.unusual_backends.items()
    return lines + [f"torch.backends.{path} = {value!r}" for path, value in backends]


def call_lines(state: TorchState, candidate: Candidate) -> list[str]:
    """The call of the function in the contexts that the program has entered."""
    call = "outputs = function(*arguments)"
    contexts = [f"torch.autocast({name!r}, {dtype})" for name, dtype in state.autocast.items()]
    if not state.gradients and any(map(_requires_grad, candidate.inputs)):
        contexts.insert(0, "torch.no_grad()")
    if not contexts:
        return [f"    {call}"]
    return [f"    with {', '.join(contexts)}:", f"        {call}"]


def _requires_grad(value: Any) -> bool:
    items: Sequence[Any] = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(item, torch.Tensor) and item.requires_grad for item in items)
