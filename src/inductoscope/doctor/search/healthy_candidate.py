"""A candidate that nothing is wrong with, to see how long healthy work takes here and now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from inductoscope.doctor.compare.values import is_plain
from inductoscope.doctor.search.candidate import Candidate

# No program adds this, so the kernel is in no cache.
_NUMBER = 0.57721566


def healthy_candidate(like: Candidate) -> Candidate | None:
    """A number added to an input of another candidate; None if that has no plain tensor."""
    place = next((n for n, value in enumerate(like.inputs) if _is_plain_float(value)), None)
    if place is None:
        return None
    graph = Graph()
    given = graph.placeholder(f"input_{place}")
    graph.output((graph.call_function(torch.add, (given, _NUMBER)),))
    changed = replace(like, module=GraphModule({}, graph), earlier=None, marks=(), backward=False)
    return changed.with_calls_changed(lambda inputs: [inputs[place].detach()])


def _is_plain_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and is_plain(value) and value.is_floating_point()
