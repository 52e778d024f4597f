"""Single replacements that the pattern matcher makes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from inductoscope.inside.compare.passes import pattern_classes, pattern_name
from inductoscope.inside.search.axis import Axis, Permit, replaced
from inductoscope.torch_facts import stages


@contextlib.contextmanager
def _switch(permit: Permit) -> Iterator[None]:
    from torch._inductor import pattern_matcher

    def make(original: Any) -> Any:
        def apply(entry: Any, match: Any, *args: Any, **kwargs: Any) -> Any:
            if permit(pattern_name(entry, match)):
                return original(entry, match, *args, **kwargs)
            return None

        return apply

    with contextlib.ExitStack() as stack:
        for entry in pattern_classes(pattern_matcher):
            stack.enter_context(replaced(entry, "apply", make))
        yield


AXIS = Axis(
    "patterns",
    stages.JOINT_PASS,
    "pattern replacements",
    _switch,
    loss=3,
    rank=50,
    rewrites_graph=True,
    also_acts_in=(stages.PRE_GRAD_PASS, stages.POST_GRAD_PASS),
    names_passes=True,
    settings={"pattern_matcher": False},
)
