"""The order of loops."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "loop ordering",
    stages.SCHEDULER,
    "the choice of loop orders",
    loss=1,
    rank=70,
    settings={"pick_loop_orders": False, "loop_ordering_after_fusion": False},
)
