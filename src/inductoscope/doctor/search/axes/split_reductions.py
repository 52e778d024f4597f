"""Reductions done in two steps."""

from inductoscope.doctor.search.axis import setting_axis

AXIS = setting_axis(
    "split reductions",
    "lowering",
    "the splitting of reductions",
    loss=1,
    rank=150,
    settings={"split_reductions": False},
)
