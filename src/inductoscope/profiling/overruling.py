"""Settings that hold whatever the program sets: statements for a run of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# At the last moment before a graph is compiled, forward or backward, whatever the program has set.
_STATEMENTS = """
import torch._inductor.compile_fx
def overrule(inner):
    def compile_graph(*args, **kwargs):
        with torch._inductor.config.patch({settings!r}):
            return inner(*args, **kwargs)
    return compile_graph
torch._inductor.compile_fx._compile_fx_inner = overrule(
    torch._inductor.compile_fx._compile_fx_inner
)
"""


def overruling(settings: Mapping[str, Any]) -> str:
    """Statements to execute once torch is imported."""
    return _STATEMENTS.format(settings=dict(settings))
