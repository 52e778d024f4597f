"""Writes constants as Python code."""

from __future__ import annotations

from typing import Any

import torch

from inductoscope.errors import ToolFailure


def literal(value: Any) -> str:
    """A constant as Python code."""
    if isinstance(value, complex):
        return f"complex({literal(value.real)}, {literal(value.imag)})"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"float('{value}')"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, torch.nn.attention.SDPBackend):
        return f"torch.nn.attention.{value}"
    text = repr(value)
    if text.startswith("<"):
        raise ToolFailure(f"the graph holds {text}, which cannot be written as Python code")
    return text
