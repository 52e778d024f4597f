"""Kernel files that Inductor wrote, kept as text."""

from __future__ import annotations

from pathlib import Path

_FILES = Path(__file__).resolve().parents[1] / "data" / "kernel_files"


def stored(name: str) -> Path:
    """The kernel file tests/data/kernel_files/NAME.txt."""
    return _FILES / f"{name}.txt"
