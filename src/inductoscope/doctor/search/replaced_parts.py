"""Decompositions and lowerings in use that are not torch's own: the program has replaced them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inductoscope.doctor.handover import ReplacedPart
from inductoscope.doctor.search.stack_samples import function_name
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.frames import is_users

TORCH_NAMES = {
    "torch._inductor.decomposition": ("decompositions",),
    "torch._inductor.lowering": ("lowerings",),
}


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
            code = getattr(innermost(function), "__code__", None)
            if code is not None and is_users(code.co_filename):
                yield function_name(code)


def innermost(function: Any) -> Any:
    """What a decomposition or lowering comes down to: torch wraps what the program gives it."""
    function = inspect.unwrap(function)
    given = made_pointwise(function)
    return inspect.unwrap(given["fn"]) if given is not None and callable(given["fn"]) else function


def made_pointwise(function: Any) -> Mapping[str, Any] | None:
    """What `make_pointwise` was given for this lowering; None if it did not make it."""
    code = getattr(function, "__code__", None)
    if code is None or not {"fn", "override_return_dtype"} <= {*code.co_freevars}:
        return None
    return inspect.getclosurevars(function).nonlocals
