"""The order of loops."""

from inductoscope.doctor.search.axis import setting_axis

AXIS = setting_axis(
    "loop ordering",
    "scheduler",
    "the choice of loop orders",
    loss=1,
    rank=70,
    settings={"pick_loop_orders": False, "loop_ordering_after_fusion": False},
)
