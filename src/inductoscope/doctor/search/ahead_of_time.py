"""A candidate through AOTInductor: exported, compiled into a library, loaded and called.

A candidate has its weights as inputs. Those that it names as constants are stored in the library,
as in the program's own package; the others are passed to it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.doctor.compare.graphs import as_function, input_names
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.marked_sizes import marked_inputs
from inductoscope.packages import cpp_library

TORCH_NAMES = {
    "torch._export": ("aot_load",),
    "torch._inductor": ("aot_compile",),
    "torch._inductor.runtime.cache_dir_utils": ("cache_dir",),
}

# Settings of AOTInductor have no meaning for torch.compile.
OWN_OPTIONS = "aot_inductor."
# Called with the graph that is compiled, whose nodes have other names, and with its inputs.
Seen = Callable[[GraphModule, tuple[Any, ...]], None]

_numbers = itertools.count()


class ExportableGraph(torch.nn.Module):
    """The candidate's graph, which keeps some of its inputs as constants."""

    def __init__(self, candidate: Candidate, inputs: tuple[Any, ...]) -> None:
        super().__init__()
        self._names = input_names(candidate.module)
        self._stored = {name for name in self._names if name in candidate.constants}
        self._function = as_function(candidate.module)
        for name, value in zip(self._names, inputs, strict=True):
            if name in self._stored:
                self.register_buffer(f"stored_{name}", value.detach())

    def forward(self, *given: Any) -> Any:
        """The graph's outputs."""
        rest = iter(given)
        values = [
            getattr(self, f"stored_{name}") if name in self._stored else next(rest)
            for name in self._names
        ]
        return self._function(*values)

    def given(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs that are passed to it."""
        named = zip(self._names, inputs, strict=True)
        return tuple(value for name, value in named if name not in self._stored)


def compiled_ahead_of_time(candidate: Candidate, seen: Seen | None = None) -> Callable[..., Any]:
    """The candidate's graph as a library that AOTInductor has made; compiled on its first call."""
    loaded: list[Callable[..., Any]] = []

    def call(*arguments: Any) -> Any:
        if not loaded:
            loaded.append(_loaded(candidate, arguments, seen))
        return loaded[0](*arguments)

    return call


def _loaded(candidate: Candidate, inputs: tuple[Any, ...], seen: Seen | None) -> Callable[..., Any]:
    program = ExportableGraph(candidate, inputs)
    given = program.given(inputs)
    with torch.no_grad():
        exported = torch.export.export(
            program, given, dynamic_shapes=(_dynamic_shapes(candidate, given),), strict=False
        )
        module = exported.module()
        if seen is not None:
            seen(module, given)
        path = torch._inductor.aot_compile(module, given, options=_options(candidate))
    device = next((str(v.device) for v in given if isinstance(v, torch.Tensor)), "cpu")
    if cpp_library.file_brings_own(Path(path)):
        cpp_library.take_from_torch()
    function = torch._export.aot_load(str(path), device)

    def call(*arguments: Any) -> Any:
        return function(*program.given(arguments))

    return call


def _options(candidate: Candidate) -> dict[str, Any]:
    """A library of its own for every compile: one that is loaded must not be written again."""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    folder = Path(cache_dir()) / "ahead_of_time" / f"{os.getpid()}-{next(_numbers)}"
    folder.mkdir(parents=True, exist_ok=True)
    return {**candidate.options, f"{OWN_OPTIONS}output_path": f"{folder}/"}


def _dynamic_shapes(candidate: Candidate, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """What may vary of each input that is passed."""
    names = [name for name in input_names(candidate.module) if name not in candidate.constants]
    shapes: dict[str, dict[int, Any]] = {name: {} for name in names}
    for _, mark in marked_inputs(candidate.module, candidate.marks):
        if mark.input in shapes:
            hint = torch.export.Dim.AUTO
            shapes[mark.input][mark.dimension] = hint(**mark.bounds) if mark.bounds else hint
    return tuple(
        shapes[name] if isinstance(value, torch.Tensor) else None
        for name, value in zip(names, given, strict=True)
    )
