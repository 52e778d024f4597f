"""Passes over the forward and the backward graph."""

from inductoscope.inside.search.axis import Axis, subsystem_switch
from inductoscope.torch_facts import stages

AXIS = Axis(
    "post-grad passes",
    stages.POST_GRAD_PASS,
    "the post-grad passes",
    subsystem_switch("post_grad_passes"),
    loss=2,
    rank=40,
    rewrites_graph=True,
    snippet=lambda name: f"torch._inductor.config.disabled_passes = {name!r}",
)
