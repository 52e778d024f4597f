"""Which operations of a program draw random numbers."""

from __future__ import annotations

import re

from inductoscope.model.entities import Recording
from inductoscope.model.fx import read_graph

_RANDOM = re.compile(
    r"(inductor_)?rand.*|\w*dropout\w*|bernoulli_?|(log_)?normal_?|multinomial|poisson|exponential_?"
    r"|uniform_?|cauchy_?|geometric_?|rrelu.*"
)


def random_operations(recording: Recording) -> list[str]:
    """Operations in the captured graphs that draw random numbers."""
    found = []
    for compile_ in recording.compiles:
        for graph in compile_.graphs:
            read = read_graph(recording, graph.digest)
            for node in read.nodes if read is not None else ():
                # As in aten.normal.Tensor_Tensor and torch.nn.functional.dropout.
                parts = node.target.split(".")
                if any(_RANDOM.fullmatch(part) for part in parts):
                    found.append(node.target)
    return list(dict.fromkeys(found))
