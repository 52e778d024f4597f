"""Shadowed calls of compiled graphs: the same call in eager and float64, forward and backward."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import get_gradient_edge
from torch.fx import GraphModule
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from inductoscope.inside.compare.graphs import as_function
from inductoscope.inside.compare.large_calls import saved_in_main_memory
from inductoscope.inside.compare.reference import Float64, LazyFloat64, UsualRounding
from inductoscope.inside.compare.values import (
    Surroundings,
    generator_states,
    is_plain,
    result_and_drawing,
    same_generators,
    same_modes,
    shared_copies,
)
from inductoscope.inside.memory_budget import has_room_to_save


class _Precision(TorchDispatchMode):
    """A dispatch mode that records the floating-point dtypes of all results."""

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
class Way:
    """The result of one way to make the call: its outputs, and its inputs after the call."""

    outputs: tuple[Any, ...]
    inputs: tuple[Any, ...]
    mode: Any

    def gradients(
        self, cotangents: Sequence[tuple[int, torch.Tensor]], wanted: Collection[int]
    ) -> dict[int, torch.Tensor]:
        """Compute gradients of the inputs with these numbers, for cotangents of outputs."""
        ends, weights = [], []
        for number, cotangent in cotangents:
            end = self.outputs[number]
            if isinstance(end, torch.Tensor) and end.requires_grad:
                ends.append(end)
                weights.append(cotangent.to(end.dtype))
        leaves = {
            number: value
            for number, value in enumerate(self.inputs)
            if number in wanted and value.requires_grad and value.is_leaf
        }
        if not ends or not leaves:
            return {}
        with self.mode or contextlib.nullcontext(), same_generators():
            found = torch.autograd.grad(ends, list(leaves.values()), weights, allow_unused=True)
        return {
            number: value for number, value in zip(leaves, found, strict=True) if value is not None
        }


# Of a call that is too large to copy: the bytes of gradients, and the elements of a value, that are
# tested at a time.
_MOST_TESTED, _LARGEST_PART = 64 << 20, 1 << 22


class ShadowedCall:
    """The inputs of a call, which can be repeated in other ways.

    If the inputs are too large to copy, those that the graph only reads are shared. Then no two
    ways are kept at a time: a forward pass keeps nothing for a backward pass, which is repeated
    from the start.
    """

    def __init__(
        self,
        module: GraphModule,
        arguments: Sequence[Any],
        written: Collection[int] | None = None,
        chance: random.Random | None = None,
    ) -> None:
        """With `written`, only the inputs with these numbers are copied."""
        self._chance = (chance or random.Random()).random()
        self._module, self._function = module, as_function(module)
        self._generators = generator_states()
        self._drops: Drops | None = None
        self._surroundings = Surroundings.now()
        self.is_large = written is not None
        self.copied = range(len(arguments)) if written is None else written
        # The inputs are copied before the call, which may write to them.
        self.inputs = shared_copies(arguments, self.copied)
        self._arguments = [v for n, v in enumerate(arguments) if n not in self.copied]
        self._versions = self._versions_now()

    def dropouts(self) -> list[torch.device]:
        """Return the devices of dropouts; raises `CannotRepeat` for other random draws."""
        from torch._inductor import config

        if config.fallback_random:
            return []  # Compiled code draws what eager draws.
        counting = Drops()
        self._call(None, counting)
        if len(set(counting.devices)) > 1:
            raise CannotRepeat("dropout on several devices")
        return counting.devices

    def repeat_dropouts(self, devices: Sequence[torch.device]) -> None:
        """Have later calls drop the elements that the compiled call drops."""
        if devices:
            with same_generators(self._generators):
                self._drops = Drops(draw_seeds(len(devices), devices[0]))

    @property
    def tested_gradients(self) -> set[int]:
        """The numbers of inputs whose gradients are tested: all, or some that fit into memory."""
        given = enumerate(self.inputs)
        numbers = [n for n, v in given if isinstance(v, torch.Tensor) and v.requires_grad]
        if not self.is_large:
            return set(numbers)
        random.Random(self._chance).shuffle(numbers)
        left = _MOST_TESTED if has_room_to_save(self._module) else 0
        tested = set()
        for number in numbers:
            size = self.inputs[number].numel() * self.inputs[number].element_size()
            if size <= left:
                tested.add(number)
                left -= size
        return tested

    @property
    def is_unchanged(self) -> bool:
        """Whether the program has not written to shared inputs since the call."""
        return self._versions == self._versions_now()

    def _versions_now(self) -> list[int]:
        given = self._arguments if self.is_large else ()
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        return [value._version for value in tensors if not value.is_inference()]

    def part(self, value: torch.Tensor) -> torch.Tensor:
        """Return the part of a large value that is tested in this call, in each way the same."""
        left_out = value.numel() - _LARGEST_PART
        if left_out <= 0:
            return value
        start = int(self._chance * left_out)
        return value.detach().reshape(-1)[start : start + _LARGEST_PART]

    def in_eager(self, *, for_backward: bool = False) -> Way:
        return self._call(None, for_backward=for_backward)

    def in_float64(self, *, for_backward: bool = False) -> Way:
        """Repeat the call in float64; raises the error of an operation that does not support it."""
        mode = LazyFloat64() if self.is_large else Float64()
        return self._call(torch.float64, mode, for_backward=for_backward)

    def with_other_rounding(self, seed: int, *, for_backward: bool = False) -> Way:
        """Repeat the call in eager, with every inexact result slightly perturbed."""
        return self._call(None, UsualRounding(seed), for_backward=for_backward)

    def precision(self) -> set[torch.dtype]:
        """Return the floating-point dtypes that the call computes in."""
        noting = _Precision()
        self._call(None, noting)
        return noting.dtypes

    def _call(
        self, dtype: torch.dtype | None, mode: Any = None, *, for_backward: bool = False
    ) -> Way:
        copies = shared_copies(self.inputs, self.copied, dtype=dtype)
        with contextlib.ExitStack() as stack:
            stack.enter_context(same_generators(self._generators))
            stack.enter_context(same_modes())
            stack.enter_context(self._surroundings.entered())
            if self.is_large:
                saving = saved_in_main_memory(self.inputs) if for_backward else torch.no_grad()
                stack.enter_context(saving)
            if mode is not None:
                stack.enter_context(mode)
            if self._drops is not None:
                stack.enter_context(self._drops)
            outputs = tuple(tree_leaves(self._function(*copies)))
        return Way(outputs, tuple(copies), mode)


# --- Dropout in eager with the very numbers that Inductor's code draws ----------------------------
#
# Compiled code takes one seed for each dropout from torch's generator and computes its random
# numbers from the seed and the position of an element (Philox). So whoever knows the state of the
# generator before a call can drop in eager what the call has dropped, without changing what the
# program draws.

_LOW_32 = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_TO_UNIT = 4.6566127342e-10


class CannotRepeat(Exception):
    """Raised if the graph draws random numbers in a way that cannot be repeated."""


def uniform(seed: int, count: int, device: torch.device) -> torch.Tensor:
    """Compute the numbers in [0, 1) that Inductor's code draws for positions 0 to count - 1."""
    # Code for the CPU uses the lower half of the seed only.
    keys = [seed & _LOW_32, 0 if device.type == "cpu" else (seed >> 32) & _LOW_32]
    a, b = _MULTIPLIERS
    c0 = torch.arange(count, device=device)
    c1, c2, c3 = (torch.zeros_like(c0) for _ in range(3))
    for _ in range(_ROUNDS):
        c0, c1, c2, c3 = (
            _high_half(b, c2) ^ c1 ^ keys[0],
            (b * c2) & _LOW_32,
            _high_half(a, c0) ^ c3 ^ keys[1],
            (a * c0) & _LOW_32,
        )
        keys = [(key + step) & _LOW_32 for key, step in zip(keys, _KEY_STEPS, strict=True)]
    folded = c0 & 0x7FFFFFFF if device.type == "cpu" else torch.where(c0 >> 31 > 0, ~c0, c0)
    return (folded & 0x7FFFFFFF).float() * torch.tensor(_TO_UNIT, device=device)


def _high_half(a: int, b: torch.Tensor) -> torch.Tensor:
    """Return the upper 32 bits of the product of two 32-bit numbers."""
    return (a * (b >> 16) + ((a * (b & 0xFFFF)) >> 16)) >> 16


def draw_seeds(count: int, device: torch.device) -> list[int]:
    """Draw the seeds that compiled code draws from the generator in its present state."""
    limits = torch.iinfo(torch.int64)
    return torch.randint(limits.min, limits.max, [count], device=device).tolist()


class Drops(TorchDispatchMode):
    """A dispatch mode in which dropout drops the same elements each time, in graph order.

    The first use computes the masks, later ones repeat them. Without seeds, dropouts are counted.
    """

    def __init__(self, seeds: Sequence[int] | None = None) -> None:
        super().__init__()
        self._seeds = seeds
        self._kept: list[torch.Tensor] = []
        self.devices: list[torch.device] = []

    def __enter__(self) -> Any:
        self._numbers = itertools.count()
        return super().__enter__()

    def _keeps(self, like: torch.Tensor, probability: float) -> torch.Tensor:
        """Return the mask of elements that the next dropout keeps."""
        number = next(self._numbers)
        if number < len(self._kept):
            return self._kept[number]
        self.devices.append(like.device)
        if self._seeds is None:
            made = torch.ones(like.shape, dtype=torch.bool, device=like.device)
        else:
            numbers = uniform(self._seeds[number], like.numel(), like.device).reshape(like.shape)
            # Compiled code compares with the probability in the tensor's own precision.
            made = numbers > float(torch.tensor(probability, dtype=like.dtype, device="cpu"))
        self._kept.append(made)
        return made

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.Tag.nondeterministic_seeded not in func.tags:
            return func(*args, **(kwargs or {}))
        if func is torch.ops.aten.bernoulli_.float:
            # Eager on a CPU multiplies by noise, which is 1 where an element is kept.
            return args[0].copy_(self._keeps(args[0], 1.0 - float(args[1])))
        if func is torch.ops.aten.native_dropout.default and args[2] is not False:
            probability = float(args[1])
            kept = self._keeps(args[0], probability)
            return args[0] * kept * (1.0 / (1.0 - probability)), kept
        result, is_random = result_and_drawing(func, args, kwargs or {})
        if is_random:
            raise CannotRepeat(str(func))
        return result


# --- Reads what the program's own backward pass gives a compiled graph, and gets from it ----------

_COMPILED = "CompiledFunctionBackward"


@dataclass
class Tap:
    """A hook on the backward pass of one call, which fires once and changes nothing."""

    # The number of each output, and its cotangent's index in the node's arguments; inputs likewise.
    outputs: list[tuple[int, int]]
    inputs: list[tuple[int, int]]
    cotangents: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    gradients: dict[int, torch.Tensor] = field(default_factory=dict)
    handle: Any = None

    def remove(self) -> None:
        if self.handle is not None:
            self.handle.remove()
            self.handle = None

    def reads(self, gradients: Sequence[Any], cotangents: Sequence[Any]) -> bool:
        """Take gradients and cotangents; return whether there are any gradients to compare.

        If a cotangent belongs to an unknown output, gradients do not follow from the known ones.
        """
        if torch.compiler.is_compiling():
            return False
        known = {place for _, place in self.outputs}
        for place, value in enumerate(cotangents):
            if place not in known and isinstance(value, torch.Tensor) and bool(value.any()):
                return False
        self.cotangents = [
            (number, cotangents[place].detach())
            for number, place in self.outputs
            if isinstance(cotangents[place], torch.Tensor)
        ]
        self.gradients = {
            number: gradients[place].detach()
            for number, place in self.inputs
            if isinstance(gradients[place], torch.Tensor)
        }
        return bool(self.gradients)


def tap_backward(
    outputs: Sequence[Any],
    arguments: Sequence[Any],
    wanted: Collection[int],
    then: Callable[[Tap], None],
) -> Tap | None:
    """Call `then` after the backward pass of a call; return None if it has none.

    `wanted` are the numbers of the arguments whose gradients it gets.
    """
    nodes = [value.grad_fn for value in outputs if isinstance(value, torch.Tensor)]
    node = next((node for node in nodes if node is not None and node.name() == _COMPILED), None)
    if node is None:
        return None
    tap = Tap(
        [
            (number, value.output_nr)
            for number, value in enumerate(outputs)
            if isinstance(value, torch.Tensor) and value.grad_fn is node
        ],
        [
            (number, place)
            for number, place in _places_of(arguments, node.next_functions)
            if number in wanted
        ],
    )

    def hook(gradients: Sequence[Any], cotangents: Sequence[Any]) -> None:
        tap.remove()
        if tap.reads(gradients, cotangents):
            then(tap)

    tap.handle = node.register_hook(hook)
    return tap


def _places_of(arguments: Sequence[Any], edges: Sequence[Any]) -> Any:
    """Yield each argument that gets a gradient, with its index among the edges of the node."""
    for number, value in enumerate(arguments):
        if not isinstance(value, torch.Tensor) or not value.requires_grad:
            continue
        wanted = get_gradient_edge(value)
        for place, (node, output) in enumerate(edges):
            if node is wanted.node and output == wanted.output_nr:
                yield number, place
                break


# --- The values of a call that are tested: outputs, gradients, and what it wrote to its inputs ----


class Trio(NamedTuple):
    """A value of a call, computed in three ways."""

    compiled: torch.Tensor
    eager: torch.Tensor
    reference: torch.Tensor
    # The factor by which the rounded numbers are larger than the value itself.
    magnified: float = 1.0


class ForwardValues:
    """The outputs, and the change of each input that eager writes to."""

    def __init__(self, call: ShadowedCall, after: Sequence[Any]) -> None:
        """Find changed inputs, from those before the call and those that eager left."""
        self._part = call.part
        pairs = {number: (call.inputs[number], after[number]) for number in call.copied}
        self._before = {
            number: one
            for number, (one, two) in pairs.items()
            if _is_float(one) and _is_float(two) and not torch.equal(one, two)
        }

    def of(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Return the values of one way to make the call, by name."""
        found = {
            f"output {number}": self._part(value)
            for number, value in enumerate(outputs)
            if _is_float(value)
        }
        for number, before in self._before.items():
            one, two = self._part(before), self._part(inputs[number])
            change = _wide(two.detach()) - _wide(one.detach())
            found[f"the change of input {number}"] = change
        return found

    def magnified(self, name: str, change: torch.Tensor) -> float:
        """Return the ratio of an input's size to its change; 1 for an output."""
        if not name.startswith("the change"):
            return 1.0
        before = self._part(self._before[int(name.rpartition(" ")[2])])
        size = float(_wide(before.detach()).abs().sum())
        return max(size / (float(change.abs().sum()) or size or 1.0), 1.0)


def backward_values(gradients: Mapping[int, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return gradients of inputs, by name."""
    return {
        f"gradient of input {number}": value
        for number, value in gradients.items()
        if _is_float(value)
    }


def trios_of(
    compiled: Mapping[str, torch.Tensor],
    eager: Mapping[str, torch.Tensor],
    reference: Mapping[str, torch.Tensor],
) -> dict[str, Trio]:
    """Return the values that all three ways have, with the same shape."""
    found = {
        name: Trio(value, eager[name], reference[name])
        for name, value in compiled.items()
        if name in eager and name in reference
    }
    return {
        name: trio
        for name, trio in found.items()
        if trio.compiled.shape == trio.eager.shape == trio.reference.shape
    }


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _is_float(value: Any) -> bool:
    """Check for an ordinary tensor of floating-point or complex numbers."""
    return is_plain(value) and (value.dtype.is_floating_point or value.dtype.is_complex)
