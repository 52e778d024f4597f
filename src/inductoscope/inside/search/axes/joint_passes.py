"""Passes over the joint graph of forward and backward."""

from inductoscope.inside.search.axis import Axis, subsystem_switch
from inductoscope.torch_facts import stages

AXIS = Axis(
    "joint passes",
    stages.JOINT_PASS,
    "the joint graph passes",
    subsystem_switch("joint_graph_passes"),
    loss=2,
    rank=30,
    rewrites_graph=True,
    settings={"joint_graph_constant_folding": False, "use_joint_graph_passes": False},
    snippet=lambda name: f"torch._inductor.config.disabled_passes = {name!r}",
)
