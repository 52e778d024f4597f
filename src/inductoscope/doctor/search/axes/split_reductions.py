"""Reductions done in two steps."""

from inductoscope.doctor.search.axis import setting_axis
from inductoscope.vocabulary import stages

AXIS = setting_axis(
    "split reductions",
    stages.LOWERING,
    "the splitting of reductions",
    loss=1,
    rank=150,
    settings={"split_reductions": False},
)
