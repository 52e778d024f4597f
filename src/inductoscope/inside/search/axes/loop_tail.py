"""Vector instructions for what is left over at the end of a loop."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "loop tail",
    stages.CODEGEN,
    "vectorised loop tails",
    loss=1,
    rank=30,
    applies=lambda situation: situation.is_on_cpu,
    settings={"cpp.enable_loop_tail_vec": False},
)
