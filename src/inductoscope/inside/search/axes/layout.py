"""Channels-last and other layouts that Inductor chooses."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "layout optimisation",
    stages.LOWERING,
    "layout optimisation",
    loss=1,
    rank=80,
    settings={"layout_optimization": False},
)
