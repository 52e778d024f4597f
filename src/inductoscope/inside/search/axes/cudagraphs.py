"""Replay of a recorded sequence of launches."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "cudagraphs",
    stages.RUNTIME,
    "CUDA graphs",
    loss=2,
    rank=170,
    applies=lambda situation: not situation.is_on_cpu,
    settings={"triton.cudagraphs": False, "triton.cudagraph_trees": False},
)
