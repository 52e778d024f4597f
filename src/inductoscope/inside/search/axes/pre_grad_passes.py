"""Passes over the graph that Dynamo captured, before gradients are taken."""

from inductoscope.inside.search.axis import Axis, subsystem_switch
from inductoscope.torch_facts import stages

AXIS = Axis(
    "pre-grad passes",
    stages.PRE_GRAD_PASS,
    "the pre-grad passes",
    subsystem_switch("pre_grad_passes"),
    loss=2,
    rank=10,
    rewrites_graph=True,
    snippet=lambda name: f"torch._inductor.config.disabled_passes = {name!r}",
)
