"""What the C++ compiler makes of a kernel at -O3."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from inductoscope.inside.search.axis import Axis, Permit, replaced
from inductoscope.torch_facts import stages


@contextlib.contextmanager
def _switch(permit: Permit) -> Iterator[None]:
    from torch._inductor import cpp_builder

    def make(original: Any) -> Any:
        def flags(*args: Any, **kwargs: Any) -> Any:
            found, linking = original(*args, **kwargs)
            if not permit("-O3"):
                found = ["O0" if flag == "O3" else flag for flag in found]
            return found, linking

        return flags

    with replaced(cpp_builder, "_get_optimization_cflags", make):
        yield


AXIS = Axis(
    "C++ optimisation",
    stages.CPP_COMPILE,
    "optimisation by the C++ compiler",
    _switch,
    loss=6,
    rank=110,
    applies=lambda situation: situation.is_on_cpu and not situation.stage,
)
