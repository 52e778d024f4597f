"""Makes a failing candidate simpler. One pass per file: a new one is a file and a line here."""

from __future__ import annotations

from inductoscope.inside.search.shrink import (
    constants,
    dtypes,
    inputs,
    nodes,
    outputs,
    settings,
    shapes,
)
from inductoscope.inside.search.shrink.shrink_pass import ShrinkPass

# In the order in which they are applied: what leaves out most comes first. `inputs` is last, since
# its recipes fit only the shapes and types that the others have left.
SHRINK_PASSES: tuple[ShrinkPass, ...] = (
    nodes.PASS,
    outputs.PASS,
    settings.PASS,
    shapes.PASS,
    dtypes.PASS,
    constants.PASS,
    inputs.PASS,
)

# Those that change how the graph is called, and not what is in it.
PASSES_AROUND_GRAPH = SHRINK_PASSES[SHRINK_PASSES.index(settings.PASS) :]
