"""Weights folded into the graph."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "freezing",
    stages.POST_GRAD_PASS,
    "freezing of weights",
    loss=2,
    rank=130,
    applies=lambda situation: bool(situation.settings.get("freezing")),
    settings={"freezing": False},
)
