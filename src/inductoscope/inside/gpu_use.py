"""Whether this process uses a GPU, asked without importing torch."""

from __future__ import annotations

import sys
from typing import Any


def uses_cuda() -> bool:
    """Check whether CUDA is initialized and can be synchronized now, so that calls can be timed."""
    return _is_initialized() and not is_capturing()


def is_capturing() -> bool:
    """Check whether a CUDA graph is being captured: synchronizing would break the capture."""
    return _is_initialized() and bool(sys.modules["torch.cuda"].is_current_stream_capturing())


def _is_initialized() -> bool:
    cuda: Any = sys.modules.get("torch.cuda")
    return cuda is not None and bool(cuda.is_initialized())
