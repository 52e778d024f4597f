"""Padded strides and shapes."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "padding",
    stages.LOWERING,
    "padding of strides and shapes",
    loss=1,
    rank=90,
    settings={"comprehensive_padding": False, "shape_padding": False},
)
