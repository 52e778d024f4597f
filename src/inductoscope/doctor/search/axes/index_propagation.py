"""Values of loop bodies that are known from their indices."""

from inductoscope.doctor.search.axis import setting_axis

AXIS = setting_axis(
    "index propagation",
    "loop-body",
    "constant and index propagation",
    loss=1,
    rank=40,
    settings={"constant_and_index_propagation": False},
)
