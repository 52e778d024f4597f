"""Fusion of two scheduler nodes into one kernel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from inductoscope.inside.search.axis import Axis, Permit, replaced
from inductoscope.torch_facts import stages


@contextlib.contextmanager
def _switch(permit: Permit) -> Iterator[None]:
    from torch._inductor.scheduler import Scheduler

    def make(original: Any) -> Any:
        def can_fuse(scheduler: Any, one: Any, two: Any, *args: Any, **kwargs: Any) -> bool:
            allowed = original(scheduler, one, two, *args, **kwargs)
            return bool(allowed and permit(f"{one.get_name()} with {two.get_name()}"))

        return can_fuse

    with replaced(Scheduler, "can_fuse", make):
        yield


AXIS = Axis(
    "fusion",
    stages.SCHEDULER,
    "fusion of kernels",
    _switch,
    loss=4,
    rank=10,
    settings={"max_fusion_size": 1},
)
