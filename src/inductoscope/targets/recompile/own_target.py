"""The device that a recording was made on, if its graphs ran on a GPU."""

from __future__ import annotations

import re

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.kernels.target import Target
from inductoscope.model.entities import Recording
from inductoscope.targets.architectures import read_target
from inductoscope.targets.pretending import devices
from inductoscope.targets.recompile.work_list import captured_graphs

# As Inductor writes it into each kernel.
_PROPERTIES = re.compile(r"DeviceProperties\(type='(cuda|hip)'[^)]{0,300}?\bcc='?(gfx\w+|\d+)")


def target_of_graphs(recording: Recording) -> Target | None:
    """None for graphs on the CPU."""
    if "cpu" in devices(captured_graphs(recording)):
        return None
    for graph in recording.graphs:
        for kernel in graph.kernels:
            found = _PROPERTIES.search(recording.payload(kernel.digest))
            if found is not None:
                return _known(f"{found[1]}:{found[2]}")
    raise ToolFailure(
        "The graphs ran on a GPU, but no kernel in the recording says which. Name a target."
    )


def _known(name: str) -> Target:
    try:
        return read_target(name)
    except UsageError as error:
        raise ToolFailure(f"The graphs cannot be compiled again here: {error}") from error
