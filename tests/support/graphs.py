"""Graphs and numbers for the tests that need no process of their own."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.inside.compare.graphs import snapshot
from inductoscope.inside.compare.values import copy_values
from inductoscope.inside.search.forks import Forks


def numbers(*shape: int) -> torch.Tensor:
    """The same random numbers every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def captured(function: Callable[..., Any], *inputs: Any) -> GraphModule:
    """The graph that Dynamo takes of a function."""
    modules: list[GraphModule] = []

    def keep(module: GraphModule, examples: Any) -> Callable[..., Any]:
        modules.append(module)
        return module.forward

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(function, backend=keep, fullgraph=True)(*copy_values(inputs))
    (module,) = modules
    return snapshot(module)  # Dynamo passes over code that came into being while it was compiling.


def script_fails(text: str, folder: Path) -> bool:
    """Whether a reproducer shows the failure; it runs in a fork, with the planted fault."""
    script = folder / "repro.py"
    script.write_text(text)

    def shows_it() -> bool:
        torch._dynamo.reset()
        try:
            runpy.run_path(str(script), run_name="__main__")
        except AssertionError:
            return True
        return False

    return bool(Forks().ask(shows_it).result)
