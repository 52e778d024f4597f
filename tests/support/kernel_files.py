"""Kernel files that Inductor wrote, kept as text."""

from __future__ import annotations

from pathlib import Path

_FILES = Path(__file__).resolve().parents[1] / "unit/torch_facts/samples/triton_kernels"


def stored(name: str) -> Path:
    """The kernel file of this name, whichever torch wrote it."""
    return next(_FILES.glob(f"*/{name}.txt"))
