"""Whether a function draws random numbers.

Torch marks operations that may. Attention is one of them, and without dropout it draws none: what
tells is whether the generators have moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from inductoscope.doctor.compare.values import (
    copy_values,
    generator_states,
    run,
    same_generators,
    same_transforms,
)

TORCH_NAMES = {
    "torch.utils._python_dispatch": ("TorchDispatchMode",),
    "torch.utils._pytree": ("tree_map_only",),
}


def draws_random_numbers(function: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """Whether a call on these inputs does, at any depth."""
    mode = _Draws()
    run(function, inputs, backward=False, mode=mode)
    return mode.any


def nodes_that_draw(module: GraphModule, inputs: Sequence[Any]) -> list[str]:
    """The nodes of a graph that draw random numbers; of several alike, the first."""
    found: dict[str, str] = {}

    class Watching(Interpreter):
        def run_node(self, n: Node) -> Any:
            before = generator_states()
            value = super().run_node(n)
            if _have_moved(before):
                found.setdefault(self._form(n), n.name)
            return value

        def _form(self, n: Node) -> str:
            """What it calls, with what: tensors by shape and type."""
            given = map_arg((n.args, n.kwargs), lambda source: self.env[source])
            forms = tree_map_only(torch.Tensor, lambda v: (v.shape, v.dtype, v.stride()), given)
            return f"{n.target} {forms}"

    with same_generators(), same_transforms():
        Watching(module, garbage_collect_values=False).run(
            *copy_values(inputs), enable_io_processing=False
        )
    return list(found.values())


def _have_moved(before: Sequence[torch.Tensor]) -> bool:
    """Whether a generator is not in the state any more that it was in."""
    return any(not torch.equal(*pair) for pair in zip(before, generator_states(), strict=True))


def result_and_drawing(
    func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, bool]:
    """What an operation returns, and whether it drew random numbers."""
    if torch.Tag.nondeterministic_seeded not in func.tags:
        return func(*args, **kwargs), False
    before = generator_states()
    result = func(*args, **kwargs)
    has_own = any(isinstance(value, torch.Generator) for value in (*args, *kwargs.values()))
    return result, has_own or _have_moved(before)


class _Draws(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.any = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result, draws = result_and_drawing(func, args, kwargs or {})
        self.any |= draws
        return result
