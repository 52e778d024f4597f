"""Decompositions and lowerings in use that are not torch's own: the program has replaced them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inductoscope.vocabulary import stages
from inductoscope.vocabulary.frames import is_users

TORCH_NAMES = {
    "torch._inductor.decomposition": ("decompositions",),
    "torch._inductor.lowering": ("lowerings",),
}


def replaced_parts(operations: Sequence[str]) -> list[str]:
    """What is said of each operation whose decomposition or lowering is code of the program."""
    from torch._inductor.decomposition import decompositions
    from torch._inductor.lowering import lowerings

    tables: tuple[tuple[str, Mapping[Any, Any]], ...] = (
        (stages.DECOMPOSITION, decompositions),
        (stages.LOWERING, lowerings),
    )
    return [
        f"the {kind} of {operation} in use is {place}, not torch's"
        for kind, table in tables
        for operation in dict.fromkeys(operations)
        for place in _own_code(table, operation)
    ]


def _own_code(table: Mapping[Any, Any], operation: str) -> Iterator[str]:
    for key, function in table.items():
        code = getattr(inspect.unwrap(function), "__code__", None)
        if str(key) == operation and code is not None and is_users(code.co_filename):
            yield f"{code.co_name} ({code.co_filename}:{code.co_firstlineno})"
