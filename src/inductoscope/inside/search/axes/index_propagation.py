"""Values of loop bodies that are known from their indices."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "index propagation",
    stages.LOOP_BODY,
    "constant and index propagation",
    loss=1,
    rank=40,
    settings={"constant_and_index_propagation": False},
)
