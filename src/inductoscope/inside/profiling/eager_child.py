"""Runs in a child process: times recorded graphs in eager, operation by operation.

A graph is rebuilt as Dynamo captured it, before anything was decomposed, and called with made-up
inputs of the recorded shapes: times of most operations do not depend on values.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from inductoscope.targets.work_list import GraphOrder

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel

# The number of calls of a graph, unless they take too long.
_CALLS = 20
_SECONDS = 2.0
_WARM_UP = 2


def time_eager(channel: Channel, graphs: list[dict[str, Any]], threads: int) -> None:
    import torch

    if threads:
        torch.set_num_threads(threads)
    channel.ready()
    for order in (GraphOrder(**graph) for graph in graphs):
        try:
            channel.say("eager", compile=order.compile, **_timed(order))
        except Exception as error:
            why = f"{type(error).__name__}: {str(error)[:200]}"
            channel.say("left-out", compile=order.compile, why=why)


def _timed(order: Any) -> dict[str, Any]:
    """Return nanoseconds of calls, of backward passes, and of each operation."""
    import torch

    from inductoscope.inside.recompiling import rebuild

    _, rebuilt = rebuild(order, {})
    inputs = [made_up(value) for value in rebuilt.inputs]
    on_gpu = any(isinstance(v, torch.Tensor) and v.is_cuda for v in inputs)
    torch.set_grad_enabled(order.learns)
    calls: list[int] = []
    backward: list[int] = []
    until = time.monotonic() + _SECONDS
    for number in range(_CALLS + _WARM_UP):
        took, gradients = call_once(rebuilt.module, inputs, on_gpu)
        if number >= _WARM_UP:
            calls.append(took)
            backward += [gradients] if gradients else []
        if calls and time.monotonic() > until:
            break
    nodes = {} if on_gpu else _by_operation(rebuilt.module, inputs)
    return {"calls": calls, "backward": backward, "nodes": nodes}


def call_once(module: Any, inputs: list[Any], on_gpu: bool) -> tuple[int, int]:
    """Return nanoseconds of a call, and of its backward pass; 0 if it has none."""
    import torch

    def now() -> int:
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter_ns()

    begun = now()
    results = module(*inputs)
    ended = now()
    found = results if isinstance(results, (tuple, list)) else (results,)
    learning = [r for r in found if isinstance(r, torch.Tensor) and r.requires_grad]
    wanted = [i for i in inputs if isinstance(i, torch.Tensor) and i.requires_grad]
    if not learning or not wanted:
        return ended - begun, 0
    given = [torch.ones_like(result) for result in learning]
    started = now()
    torch.autograd.grad(learning, wanted, given, allow_unused=True)
    return ended - begun, now() - started


def _by_operation(module: Any, inputs: list[Any]) -> dict[str, list[int]]:
    from torch.fx import Interpreter

    found: dict[str, list[int]] = {}

    class Timing(Interpreter):  # type: ignore[misc]
        def run_node(self, n: Any) -> Any:
            started = time.perf_counter_ns()
            result = super().run_node(n)
            if n.op.startswith("call_"):
                found.setdefault(n.name, []).append(time.perf_counter_ns() - started)
            return result

    until = time.monotonic() + _SECONDS
    for number in range(_CALLS + _WARM_UP):
        if number == _WARM_UP:
            found.clear()
        Timing(module).run(*inputs)
        if number >= _WARM_UP and time.monotonic() > until:
            break
    return found


def made_up(example: Any) -> Any:
    """Make an input like the recorded one: values valid for any function, and for any index."""
    import torch

    if not isinstance(example, torch.Tensor):
        return int(example)
    shape, stride = [int(n) for n in example.shape], [int(n) for n in example.stride()]
    made = torch.empty_strided(shape, stride, dtype=example.dtype, device=example.device)
    if made.is_floating_point():
        made.uniform_(0.5, 1.5)
    else:
        made.zero_()
    return made.requires_grad_(example.requires_grad and made.is_floating_point())
