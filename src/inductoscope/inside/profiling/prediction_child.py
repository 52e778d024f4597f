"""Runs in a child process: times recorded graphs as they are, and with each of some settings.

A graph is rebuilt as Dynamo captured it, compiled with each variant of the settings, and called
with the program's own arguments, the variants in turns, and eager between them, as it is when the
program is measured: what a call finds in the caches and in free memory depends on the one before.
Inputs that were no arguments, such as parameters, are made up.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductoscope.inside.profiling.alternating_calls import kept_inputs
from inductoscope.targets.work_list import GraphOrder

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel

# Calls of each variant of a graph, unless they take too long.
_CALLS = 15
_SECONDS = 4.0


def time_variants(channel: Channel, order: Mapping[str, Any]) -> None:
    """Time every graph of the order with each variant of the settings, and report each graph."""
    import torch  # noqa: F401

    known = kept_inputs(Path(order["inputs"]))
    channel.ready()
    for graph, settings in zip(order["graphs"], order["settings"], strict=True):
        found = GraphOrder(**graph)
        try:
            variants = [_Variant(settings)]
            for change in order["changes"]:
                variants.append(_Variant({**settings, **change["settings"]}, change["code"]))
            channel.say("timed", compile=found.compile, variants=_timed(found, variants, known))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:200]
            channel.say("left-out", compile=found.compile, why=why)


@dataclass(frozen=True)
class _Variant:
    """How a graph is compiled: settings, and statements to execute before."""

    settings: Mapping[str, object]
    code: str = ""


def _timed(order: Any, variants: Sequence[_Variant], known: Mapping[Any, Any]) -> list[list[int]]:
    """Nanoseconds of calls in eager and of each variant, with their backward passes."""
    import torch

    from inductoscope.inside.profiling.eager_child import call_once
    from inductoscope.inside.recompiling import rebuild

    _, rebuilt = rebuild(order, {})
    inputs = [_input(value, known) for value in rebuilt.inputs]
    on_gpu = any(isinstance(v, torch.Tensor) and v.is_cuda for v in inputs)
    torch.set_grad_enabled(order.learns)

    def call(function: Callable[..., Any]) -> int:
        return sum(call_once(function, inputs, on_gpu))

    compiled = [_compiled(rebuilt.module, variant, call) for variant in variants]
    found: list[list[int]] = [[], *([] for _ in variants)]
    until = time.monotonic() + _SECONDS
    for number in range(_CALLS):
        for times, function in zip(found[1:], compiled, strict=True):
            found[0].append(call(rebuilt.module))
            times.append(call(function))
        if number >= 2 and time.monotonic() > until:
            break
    return found


def _input(example: Any, known: Mapping[Any, Any]) -> Any:
    """What the program gave for such an input, if that is known."""
    import torch

    from inductoscope.inside.profiling.alternating_calls import form_of
    from inductoscope.inside.profiling.eager_child import made_up

    if not isinstance(example, torch.Tensor) or form_of(example) not in known:
        return made_up(example)
    given = known[form_of(example)].to(example.device)
    return given.requires_grad_(example.requires_grad and given.is_floating_point())


def _compiled(
    module: Any, variant: _Variant, call: Callable[[Callable[..., Any]], int]
) -> Callable[..., Any]:
    """The module, compiled in this way; called twice, so that all of it is there."""
    import torch
    from torch._inductor import config

    def graph(*inputs: Any) -> Any:
        return module(*inputs)

    # Each has a code object of its own: what is compiled for one is not used for the next.
    graph.__code__ = graph.__code__.replace()
    with config.patch(dict(variant.settings)), _tables_as_before():
        exec(variant.code, {"torch": torch})
        function: Callable[..., Any] = torch.compile(graph)
        call(function)
        call(function)
    return function


@contextlib.contextmanager
def _tables_as_before() -> Iterator[None]:
    """What statements change about operations holds for one variant only."""
    from torch._inductor import decomposition, lowering

    # torch keeps a copy of the table, made for the variant before.
    decomposition.fast_random_decomps.cache_clear()
    tables: list[Any] = [decomposition.decompositions, lowering.lowerings, lowering.fallbacks]
    copies = [table.copy() for table in tables]
    try:
        yield
    finally:
        for table, copy in zip(tables, copies, strict=True):
            table.clear()
            table.update(copy)
        decomposition.fast_random_decomps.cache_clear()
