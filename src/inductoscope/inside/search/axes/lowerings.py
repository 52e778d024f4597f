"""Lowering of one node to loops; without it the node runs as eager's own kernel."""

from inductoscope.inside.search.axis import Axis, subsystem_switch
from inductoscope.torch_facts import stages

AXIS = Axis(
    "lowerings",
    stages.LOWERING,
    "lowering to loops",
    subsystem_switch("lowerings"),
    loss=2,
    rank=180,
    names_operations=True,
)
