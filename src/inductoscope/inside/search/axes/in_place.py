"""A kernel that writes over one of its inputs."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "in-place buffers",
    stages.SCHEDULER,
    "writing in place",
    loss=1,
    rank=60,
    settings={"inplace_buffers": False},
)
