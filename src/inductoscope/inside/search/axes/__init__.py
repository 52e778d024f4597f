"""One axis per file. A new one is a file and a line in `AXES`."""

from __future__ import annotations

from inductoscope.inside.search.axes import (
    autotune,
    buffer_reuse,
    cpp_optimisation,
    cudagraphs,
    decompositions,
    dynamic_shapes,
    fast_math,
    freezing,
    fusion,
    in_place,
    index_propagation,
    joint_passes,
    layout,
    loop_ordering,
    loop_tail,
    lowerings,
    padding,
    patterns,
    post_grad_passes,
    pre_grad_passes,
    precision_casts,
    split_reductions,
    tuning_while_compiling,
    vectorisation,
)
from inductoscope.inside.search.axis import Axis

# In the order of the compiler's stages.
AXES: tuple[Axis, ...] = (
    dynamic_shapes.AXIS,
    pre_grad_passes.AXIS,
    decompositions.AXIS,
    joint_passes.AXIS,
    patterns.AXIS,
    freezing.AXIS,
    post_grad_passes.AXIS,
    layout.AXIS,
    padding.AXIS,
    precision_casts.AXIS,
    split_reductions.AXIS,
    lowerings.AXIS,
    autotune.AXIS,
    tuning_while_compiling.AXIS,
    fusion.AXIS,
    loop_ordering.AXIS,
    in_place.AXIS,
    index_propagation.AXIS,
    vectorisation.AXIS,
    loop_tail.AXIS,
    buffer_reuse.AXIS,
    fast_math.AXIS,
    cpp_optimisation.AXIS,
    cudagraphs.AXIS,
)
