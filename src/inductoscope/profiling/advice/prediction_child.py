"""Runs in a child process: times recorded graphs as they are, and with each of some settings.

    python bounded.py LIMITS file prediction_child.py ORDER THREADS EVENTS_FD

A graph is rebuilt as Dynamo captured it, compiled with each variant of the settings, and called
with made-up inputs of the recorded shapes, the variants in turns.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

TORCH_NAMES = {
    "torch._inductor.config": ("patch",),
}

# Calls of each variant of a graph, unless they take too long.
_CALLS = 15
_SECONDS = 4.0


def main() -> None:
    """Time every graph of the order, and report each."""
    order_path, threads, events = sys.argv[1:4]

    def say(event: str, **more: Any) -> None:
        os.write(int(events), json.dumps({"event": event, **more}).encode() + b"\n")

    from inductoscope.targets.recompile.work_list import GraphOrder

    order = json.loads(Path(order_path).read_text("utf-8"))
    os.environ.update(order["environment"])
    import torch

    if int(threads):
        torch.set_num_threads(int(threads))
    say("start", stage="preparation")
    for graph, settings in zip(order["graphs"], order["settings"], strict=True):
        found = GraphOrder(**graph)
        try:
            variants = [{**settings, **changes} for changes in order["changes"]]
            say("timed", compile=found.compile, variants=_timed(found, [settings, *variants]))
        except Exception as error:
            say("left-out", compile=found.compile, why=f"{type(error).__name__}: {error}"[:200])


def _timed(order: Any, variants: Sequence[Mapping[str, object]]) -> list[list[int]]:
    """Nanoseconds of calls of each variant, with their backward passes."""
    import torch

    from inductoscope.profiling.kernels.eager_child import call_once, made_up
    from inductoscope.targets.recompile.compiling import rebuild

    _, rebuilt = rebuild(order, {})
    inputs = [made_up(value) for value in rebuilt.inputs]
    on_gpu = any(isinstance(v, torch.Tensor) and v.is_cuda for v in inputs)
    torch.set_grad_enabled(order.learns)

    def call(function: Callable[..., Any]) -> int:
        return sum(call_once(function, inputs, on_gpu))

    compiled = [_compiled(rebuilt.module, settings, call) for settings in variants]
    found: list[list[int]] = [[] for _ in variants]
    until = time.monotonic() + _SECONDS
    for number in range(_CALLS):
        for times, function in zip(found, compiled, strict=True):
            times.append(call(function))
        if number >= 2 and time.monotonic() > until:
            break
    return found


def _compiled(
    module: Any, settings: Mapping[str, object], call: Callable[[Callable[..., Any]], int]
) -> Callable[..., Any]:
    """The module, compiled with these settings; called twice, so that all of it is there."""
    import torch
    from torch._inductor import config

    def graph(*inputs: Any) -> Any:
        return module(*inputs)

    # Each has a code object of its own: what is compiled for one is not used for the next.
    graph.__code__ = graph.__code__.replace()
    with config.patch(dict(settings)):
        function: Callable[..., Any] = torch.compile(graph)
        call(function)
        call(function)
    return function


if __name__ == "__main__":
    main()
