"""Reductions done in two steps."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "split reductions",
    stages.LOWERING,
    "the splitting of reductions",
    loss=1,
    rank=150,
    settings={"split_reductions": False},
)
