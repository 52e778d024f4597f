"""CUDA graphs are off while graphs are checked.

A check calls a compiled graph once more than the program does. CUDA graphs reuse the memory of
outputs from one call to the next, so the extra call would overwrite what the program still holds.
Whether the program fails because of CUDA graphs is tried without checks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

TORCH_NAMES = {
    "torch._inductor.config": ("patch",),
}

SETTING = "triton.cudagraphs"


def without_setting(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the compiler, other than this one."""
    return {name: value for name, value in settings.items() if name != SETTING}


@contextlib.contextmanager
def no_cuda_graphs(backend: Any) -> Iterator[None]:
    """Compile without CUDA graphs, whatever the options of torch.compile say."""
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
