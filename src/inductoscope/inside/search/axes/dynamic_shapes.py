"""Sizes that are kept symbolic, so that one kernel serves many shapes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from inductoscope.inside.search.axis import Axis, Permit
from inductoscope.torch_facts import stages


@contextlib.contextmanager
def _switch(permit: Permit) -> Iterator[None]:
    import torch._dynamo.config as config

    if permit("dynamic shapes"):
        yield
        return
    with config.patch(assume_static_by_default=True, automatic_dynamic_shapes=False):
        yield


AXIS = Axis(
    "dynamic shapes",
    stages.LOOP_BODY,
    "dynamic shapes",
    _switch,
    loss=3,
    rank=120,
    applies=lambda situation: situation.is_dynamic,
    snippet=lambda name: "torch._dynamo.config.automatic_dynamic_shapes = False",
)
