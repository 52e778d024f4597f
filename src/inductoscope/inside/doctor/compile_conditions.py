"""Conditions for checking calls of a graph: its backend, its options, whether it is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from inductoscope.inside.program_settings import backend_of


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


def is_traced(arguments: Sequence[Any]) -> bool:
    """Check whether the call is being traced, with tensors that have no data."""
    from torch._subclasses.fake_tensor import FakeTensor

    return torch.compiler.is_compiling() or any(isinstance(a, FakeTensor) for a in arguments)
