"""How a graph is compiled: by which backend, and with which options."""

from __future__ import annotations

from typing import Any

from inductoscope.capture.program_settings import backend_of
from inductoscope.doctor.inside.cuda_graphs import without_setting

TORCH_NAMES = {
    "torch._dynamo.exc": ("BackendCompilerFailed",),
    "torch._inductor.exc": ("InductorError",),
}


def is_compilers_own(error: BaseException) -> bool:
    """Whether a backend failed; Dynamo also raises exceptions for its own control flow."""
    from torch._dynamo import exc
    from torch._inductor import exc as inductor_exc

    return isinstance(error, (exc.BackendCompilerFailed, inductor_exc.InductorError))


def how_compiled(output: Any) -> tuple[dict[str, Any], bool | None, str]:
    """Options, dynamic, and the backend's name if it is not Inductor."""
    inner = backend_of(output)
    given = {str(k): v for k, v in (getattr(inner, "config", None) or {}).items()}
    options = without_setting(given)
    name = getattr(inner, "compiler_name", "")
    is_inductor = name == "inductor" or "inductor" in repr(inner)
    name = name or getattr(inner, "__name__", "") or type(inner).__name__
    return options, getattr(inner, "dynamic", None), "" if is_inductor else str(name)
