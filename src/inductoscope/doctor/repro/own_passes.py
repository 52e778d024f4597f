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
    definitions, lines = own_passes_parts()
    return "\n\n\n".join(filter(None, [definitions, "\n".join(lines)]))


def own_passes_parts() -> tuple[str, list[str]]:
    """Definitions, and apart from them the lines that set the passes."""
    parts, lines = SourceParts(), []
    for setting, value in settings_with_code().items():
        lines.append(f"torch._inductor.config.{setting} = {_added(value, parts)}")
    if not lines:
        return "", []
    imports = sorted({*parts.imports, "import torch._inductor.config"} - {"import torch"})
    head = "\n".join([*imports, *parts.values])
    return f"{head}\n\n\n{parts.definitions}", lines


def _added(value: Any, parts: SourceParts) -> str:
    """The expression for a pass, whose definition is added."""
    if isinstance(value, FunctionType):
        return parts.add_function(value)
    if vars(value):
        raise ToolFailure(f"the program's pass {type(value).__name__} has a state of its own")
    parts.add_class(type(value))
    return f"{type(value).__name__}()"
