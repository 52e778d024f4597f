"""Decompositions of operations into simpler ones."""

from inductoscope.isolate.axis import Axis, subsystem_switch

AXIS = Axis(
    "decompositions",
    "decomposition",
    "decompositions",
    subsystem_switch("decomposition"),
    loss=2,
)
