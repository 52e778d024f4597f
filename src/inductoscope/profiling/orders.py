"""Orders for a measured run of the program, passed through the environment."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.launch.environment import PartName, with_parts
from inductoscope.recording.codec import decode, encode

VARIABLE = "INDUCTOSCOPE_PROFILE"
# Stops torch's profiler from logging its start and stop on standard error.
_QUIET = {"KINETO_LOG_LEVEL": "99"}


@dataclass(frozen=True)
class Orders:
    # Whether to also record the run, as `run` does.
    records: bool = False
    # Settings of torch._inductor.config to try, by their names there; values are JSON.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Statements to execute once torch is imported.
    code: str = ""

    def environment(self, profiler: PartName = "call-times") -> dict[str, str]:
        parts = with_parts("record", profiler) if self.records else with_parts(profiler)
        return {VARIABLE: json.dumps(encode(self)), **_QUIET, **parts}


def orders_from(environment: Mapping[str, str] = os.environ) -> Orders:
    return decode(Orders, json.loads(environment[VARIABLE]))


# --- statements that override settings of the program itself --------------------------------------

# Applied just before a graph is compiled, forward or backward, after all settings of the program.
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
    """Return statements that override settings, to execute once torch is imported."""
    return _STATEMENTS.format(settings=dict(settings))


def at_last(statements: str) -> str:
    """Return statements that run other statements just before each compile."""
    return _LAST.format(statements=textwrap.indent(statements, " " * 8))


def overruling_sizes(*, dynamic: bool) -> str:
    """Return statements that override the argument `dynamic` of torch.compile."""
    return _SIZES.format(dynamic=dynamic)
