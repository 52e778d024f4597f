"""The program's own passes over graphs, as text that registers them again."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from inductoscope.doctor.repro.source_parts import SourceParts
from inductoscope.doctor.search.program_settings import settings_with_code
from inductoscope.errors import ToolFailure


def own_passes_text() -> str:
    """Definitions and settings; empty if the program has set no pass of its own.

    Raises `ToolFailure` if one cannot be copied.
    """
    parts = SourceParts()
    lines = add_own_passes(parts)
    return "\n\n\n".join([parts.text, "\n".join(lines)]) if lines else ""


def add_own_passes(parts: SourceParts) -> list[str]:
    """Add what the passes are made of; returns the lines that set them."""
    settings = settings_with_code()
    if settings:
        parts.imports.add("import torch._inductor.config")
    return [f"torch._inductor.config.{name} = {_added(v, parts)}" for name, v in settings.items()]


def _added(value: Any, parts: SourceParts) -> str:
    """The expression for a pass, whose definition is added."""
    if isinstance(value, FunctionType):
        return parts.add_function(value)
    if vars(value):
        raise ToolFailure(f"the program's pass {type(value).__name__} has a state of its own")
    parts.add_class(type(value))
    return f"{type(value).__name__}()"
