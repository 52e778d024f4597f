"""The order of loops."""

from inductoscope.doctor.search.axis import setting_axis
from inductoscope.vocabulary import stages

AXIS = setting_axis(
    "loop ordering",
    stages.SCHEDULER,
    "the choice of loop orders",
    loss=1,
    rank=70,
    settings={"pick_loop_orders": False, "loop_ordering_after_fusion": False},
)
