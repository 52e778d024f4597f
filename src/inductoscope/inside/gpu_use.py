"""Whether this process uses a GPU, asked without importing torch."""

from __future__ import annotations

import sys
from typing import Any


def uses_cuda() -> bool:
    """Whether it uses a GPU, and calls to it can be timed now."""
    return _is_initialized() and not is_capturing()


def is_capturing() -> bool:
    """Whether work is being recorded into a CUDA graph: to wait for it would spoil that."""
    return _is_initialized() and bool(sys.modules["torch.cuda"].is_current_stream_capturing())


def _is_initialized() -> bool:
    cuda: Any = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_initialized())
