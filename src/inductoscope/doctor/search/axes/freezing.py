"""Weights folded into the graph."""

from inductoscope.doctor.search.axis import setting_axis

AXIS = setting_axis(
    "freezing",
    "post-grad-pass",
    "freezing of weights",
    loss=2,
    rank=130,
    applies=lambda situation: bool(situation.settings.get("freezing")),
    settings={"freezing": False},
)
