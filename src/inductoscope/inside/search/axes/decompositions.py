"""Decompositions of operations into simpler ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from inductoscope.inside.search.axis import (
    Axis,
    Permit,
    replaced,
    subsystem_switch,
)
from inductoscope.torch_facts import stages


@contextlib.contextmanager
def _switch(permit: Permit) -> Iterator[None]:
    """An operation that is not decomposed runs as eager's own kernel, though the table has it."""
    from torch._inductor import graph, lowering

    def make(original: Any) -> Any:
        def make_fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
            return original(op, *args, **{**kwargs, "override_decomp": True})

        return make_fallback

    with (
        replaced(graph, "make_fallback", make),
        replaced(lowering, "make_fallback", make),
        subsystem_switch("decomposition")(permit),
    ):
        yield


AXIS = Axis(
    "decompositions",
    stages.DECOMPOSITION,
    "decompositions",
    _switch,
    loss=2,
    rank=20,
    rewrites_graph=True,
    names_operations=True,
)
