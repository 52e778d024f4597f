"""Conditions for checking calls of a graph: its backend, its options, room for copies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from inductoscope.inside.compare.values import size_in_bytes
from inductoscope.inside.program_settings import backend_of
from inductoscope.processes.status import free_memory


def is_compilers_own(error: BaseException) -> bool:
    """Check whether a backend failed; Dynamo also raises exceptions for control flow."""
    from torch._dynamo import exc
    from torch._inductor import exc as inductor_exc

    return isinstance(error, (exc.BackendCompilerFailed, inductor_exc.InductorError))


def how_compiled(output: Any) -> tuple[dict[str, Any], bool | None, str]:
    """Return options, `dynamic`, and the backend's name if it is not Inductor."""
    inner = backend_of(output)
    given = {str(k): v for k, v in (getattr(inner, "config", None) or {}).items()}
    options = without_setting(given)
    name = getattr(inner, "compiler_name", "")
    is_inductor = name == "inductor" or "inductor" in repr(inner)
    name = name or getattr(inner, "__name__", "") or type(inner).__name__
    return options, getattr(inner, "dynamic", None), "" if is_inductor else str(name)


# --- CUDA graphs are off while graphs are checked -------------------------------------------------
#
# A check calls a compiled graph once more than the program does. CUDA graphs reuse the memory of
# outputs from one call to the next, so the extra call would overwrite what the program still holds.
# Whether the program fails because of CUDA graphs is tried without checks.

SETTING = "triton.cudagraphs"


def without_setting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compiler settings without the one for CUDA graphs."""
    return {name: value for name, value in settings.items() if name != SETTING}


@contextlib.contextmanager
def no_cuda_graphs(backend: Any) -> Iterator[None]:
    """Compile without CUDA graphs inside the block, despite the options of torch.compile."""
    import torch._inductor.config as config

    options = dict(getattr(backend, "config", None) or {})
    before = getattr(backend, "config", None)
    if options.get(SETTING):
        backend.config = {**options, SETTING: False}
    try:
        with config.patch({SETTING: False}):
            yield
    finally:
        if options.get(SETTING):
            backend.config = before


# --------------------------------------------------------------------------------------------------
# Conditions for repeating a call of the program: real tensors, and room for copies.


# A check needs several copies of the inputs; the program itself needs memory, too.
_COPIES = 4
_PART_OF_MEMORY = 0.25


def is_traced(arguments: Sequence[Any]) -> bool:
    """Check whether the call is being traced, with tensors that have no data."""
    from torch._subclasses.fake_tensor import FakeTensor

    return torch.compiler.is_compiling() or any(isinstance(a, FakeTensor) for a in arguments)


def has_room_for_copies(arguments: Sequence[Any]) -> bool:
    needed = _COPIES * size_in_bytes(arguments)
    return needed <= _PART_OF_MEMORY * _free_memory_for(arguments)


def _free_memory_for(values: Sequence[Any]) -> int:
    """Return the free bytes of main memory, or of a GPU in use if that has less."""
    free = [free_memory()]
    devices = {value.device for value in values if isinstance(value, torch.Tensor)}
    for device in devices:
        if device.type == "cuda":
            kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
            free.append(torch.cuda.mem_get_info(device)[0] + kept)
    return min(free)
