"""A kernel that writes over one of its inputs."""

from inductoscope.doctor.search.axis import setting_axis
from inductoscope.vocabulary import stages

AXIS = setting_axis(
    "in-place buffers",
    stages.SCHEDULER,
    "writing in place",
    loss=1,
    rank=60,
    settings={"inplace_buffers": False},
)
