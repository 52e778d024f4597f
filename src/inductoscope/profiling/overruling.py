"""Settings and arguments that hold whatever the program sets: statements for a run of it."""

from __future__ import annotations

import textwrap
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

_LAST = """
import torch._inductor.compile_fx
def at_last(inner):
    def compile_graph(*args, **kwargs):
{statements}
        return inner(*args, **kwargs)
    return compile_graph
torch._inductor.compile_fx._compile_fx_inner = at_last(
    torch._inductor.compile_fx._compile_fx_inner
)
"""

_SIZES = """
compile_as_asked = torch.compile
def compile_otherwise(*args, **kwargs):
    return compile_as_asked(*args, **{{**kwargs, "dynamic": {dynamic!r}}})
torch.compile = compile_otherwise
"""


def overruling(settings: Mapping[str, Any]) -> str:
    """Statements to execute once torch is imported."""
    return _STATEMENTS.format(settings=dict(settings))


def at_last(statements: str) -> str:
    """The same for statements, such as those about an operation that the program lowers itself."""
    return _LAST.format(statements=textwrap.indent(statements, " " * 8))


def overruling_sizes(*, dynamic: bool) -> str:
    """The same for how sizes are compiled, whatever the program asks torch.compile for."""
    return _SIZES.format(dynamic=dynamic)
