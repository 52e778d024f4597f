"""Decompositions and lowerings in use that are not torch's own: the program has replaced them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import islice
from types import FunctionType
from typing import Any

from inductoscope.doctor.handover import ReplacedPart
from inductoscope.doctor.search.stack_samples import function_name
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.frames import is_users

TORCH_NAMES = {
    "torch._inductor.decomposition": ("decompositions",),
    "torch._inductor.lowering": ("lowerings",),
}
_LOWERING = "torch._inductor.lowering"


def replaced_parts(operations: Sequence[str]) -> list[ReplacedPart]:
    """Those of these operations whose decomposition or lowering is code of the program."""
    from torch._inductor.decomposition import decompositions
    from torch._inductor.lowering import lowerings

    tables: tuple[tuple[str, Mapping[Any, Any]], ...] = (
        (stages.DECOMPOSITION, decompositions),
        (stages.LOWERING, lowerings),
    )
    return [
        ReplacedPart(kind, operation, name)
        for kind, table in tables
        for operation in dict.fromkeys(operations)
        for name in _own_code(table, operation)
    ]


def _own_code(table: Mapping[Any, Any], operation: str) -> Iterator[str]:
    for key, function in table.items():
        if str(key) == operation:
            codes = (getattr(layer, "__code__", None) for layer in layers(function))
            own = (code for code in codes if code is not None and is_users(code.co_filename))
            yield from (function_name(code) for code in islice(own, 1))


def layers(function: Any) -> Iterator[Any]:
    """A decomposition or lowering, and what is in it: torch wraps what the program gives it.

    The program may do the same to what torch has.
    """
    while callable(function) and not isinstance(function, type):
        yield function
        given = made_pointwise(function) or {}
        function = inspect.getattr_static(function, "__wrapped__", given.get("fn"))


def made_pointwise(function: Any) -> Mapping[str, Any] | None:
    """What `make_pointwise` was given for this lowering; None if it did not make it."""
    return told_by_torch(function, {"fn", "override_return_dtype"})


def told_by_torch(function: Any, names: Set[str]) -> Mapping[str, Any] | None:
    """The variables around a function, if it is one of torch's for lowerings and has these.

    A program may have a copy of such a function, which is its own code.
    """
    if not isinstance(function, FunctionType) or not names <= {*function.__code__.co_freevars}:
        return None
    if function.__globals__.get("__name__") != _LOWERING:
        return None
    return inspect.getclosurevars(function).nonlocals
