"""Channels-last and other layouts that Inductor chooses."""

from inductoscope.doctor.search.axis import setting_axis

AXIS = setting_axis(
    "layout optimisation",
    "lowering",
    "layout optimisation",
    loss=1,
    rank=80,
    settings={"layout_optimization": False},
)
