"""Channels-last and other layouts that Inductor chooses."""

from inductoscope.doctor.search.axis import setting_axis

AXIS = setting_axis(
    "layout",
    "lowering",
    "layout optimisation",
    loss=1,
    settings={"layout_optimization": False},
)
