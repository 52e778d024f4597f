"""One call of a compiled graph, shadowed: the same call in eager and in float64."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inductoscope.doctor.compare.graphs import as_function
from inductoscope.doctor.compare.rounding import float64_mode, usual_rounding
from inductoscope.doctor.compare.surroundings import Surroundings
from inductoscope.doctor.compare.values import copy_values, same_generators
from inductoscope.doctor.sentinel.inductor_dropout import CannotRepeat, Drops, draw_seeds

TORCH_NAMES = {
    "torch._inductor.config": ("fallback_random",),
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
    "torch.utils._pytree": ("tree_leaves",),
}

# The state of each generator that a graph may draw from.
States = dict[torch.device, torch.Tensor]


def generator_states() -> States:
    """The states as they are now."""
    states = {torch.device("cpu"): torch.get_rng_state()}
    if torch.cuda.is_initialized():
        device = torch.device("cuda", torch.cuda.current_device())
        states[device] = torch.cuda.get_rng_state(device)
    return states


@contextlib.contextmanager
def as_before(states: States) -> Iterator[None]:
    """The generators in these states; afterwards they are as they were."""
    with same_generators():
        for device, state in states.items():
            if device.type == "cuda":
                torch.cuda.set_rng_state(state, device)
            else:
                torch.set_rng_state(state)
        yield


class _Precision(TorchDispatchMode):
    """Notes the types of floating point numbers that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.dtype.is_floating_point:
                self.dtypes.add(value.dtype)
        return result


@dataclass(frozen=True)
class Dropouts:
    """How many dropouts a graph has, and where."""

    count: int = 0
    device: str = "cpu"


@dataclass(frozen=True)
class Way:
    """What one way to make the call gave: outputs, and its own inputs as the call left them."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    mode: Any

    def gradients(self, cotangents: Sequence[tuple[int, torch.Tensor]]) -> dict[int, torch.Tensor]:
        """Gradients of the inputs, by number, for cotangents of outputs."""
        ends, weights = [], []
        for number, cotangent in cotangents:
            end = self.outputs[number]
            if isinstance(end, torch.Tensor) and end.requires_grad:
                ends.append(end)
                weights.append(cotangent.to(end.dtype))
        leaves = {
            number: value
            for number, value in enumerate(self.inputs)
            if isinstance(value, torch.Tensor) and value.requires_grad and value.is_leaf
        }
        if not ends or not leaves:
            return {}
        with self.mode or contextlib.nullcontext(), same_generators():
            found = torch.autograd.grad(ends, list(leaves.values()), weights, allow_unused=True)
        return {
            number: value for number, value in zip(leaves, found, strict=True) if value is not None
        }


class ShadowedCall:
    """The inputs of a call, and the call made again in other ways."""

    def __init__(self, module: GraphModule, arguments: Sequence[Any], states: States) -> None:
        self._function = as_function(module)
        self._states = states
        self._drops: Drops | None = None
        self._surroundings = Surroundings.now()
        # Copied before the call, which may write to its arguments.
        self.inputs = copy_values(arguments)

    def count_dropouts(self) -> Dropouts:
        """The graph's dropouts. Raises `CannotRepeat` if it draws other random numbers."""
        from torch._inductor import config

        if config.fallback_random:
            return Dropouts()  # Compiled code draws what eager draws.
        counting = Drops()
        self._call(None, counting.replayed())
        if len(set(counting.devices)) > 1:
            raise CannotRepeat("dropout on several devices")
        return Dropouts(len(counting.devices), *map(str, counting.devices[:1]))

    def repeat_dropouts(self, dropouts: Dropouts) -> None:
        """From now on, drop what the compiled call drops."""
        if dropouts.count:
            with as_before(self._states):
                self._drops = Drops(draw_seeds(dropouts.count, torch.device(dropouts.device)))

    def in_eager(self) -> Way:
        """The call without a compiler."""
        return self._call(None)

    def in_float64(self) -> Way:
        """The call in float64. Raises what an operation without float64 support raises."""
        return self._call(torch.float64, float64_mode())

    def with_other_rounding(self, seed: int) -> Way:
        """The call in eager, with the result of every inexact operation changed a little."""
        return self._call(None, usual_rounding(seed))

    def precision(self) -> set[torch.dtype]:
        """The types that the call computes in."""
        noting = _Precision()
        self._call(None, noting)
        return noting.dtypes

    def _call(self, dtype: torch.dtype | None, mode: Any = None) -> Way:
        copies = copy_values(self.inputs, dtype=dtype)
        with contextlib.ExitStack() as stack:
            stack.enter_context(as_before(self._states))
            stack.enter_context(self._surroundings.entered())
            if mode is not None:
                stack.enter_context(mode)
            if self._drops is not None:
                stack.enter_context(self._drops.replayed())
            outputs = tuple(tree_leaves(self._function(*copies)))
        return Way(outputs, tuple(copies), mode)
