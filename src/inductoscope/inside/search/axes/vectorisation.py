"""Vectorisation of one C++ kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from inductoscope.inside.search.axis import Axis, Permit, replaced
from inductoscope.torch_facts import stages


@contextlib.contextmanager
def _switch(permit: Permit) -> Iterator[None]:
    from torch._inductor.codegen import cpp

    def make(original: Any) -> Any:
        def select_tiling(selector: Any, *args: Any, **kwargs: Any) -> Any:
            factors, indices, *rest = original(selector, *args, **kwargs)
            if factors and not permit("a C++ kernel"):
                factors, indices = [], []
            return (factors, indices, *rest)

        return select_tiling

    with replaced(cpp.TilingSelect, "select_tiling", make):
        yield


AXIS = Axis(
    "vectorisation",
    stages.CODEGEN,
    "vectorisation of C++ loops",
    _switch,
    loss=3,
    rank=20,
    applies=lambda situation: situation.is_on_cpu,
    settings={"cpp.simdlen": 1},
)
