"""Memory of a dead buffer taken for a new one."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "buffer reuse",
    stages.WRAPPER,
    "the reuse of buffers",
    loss=1,
    rank=50,
    settings={"allow_buffer_reuse": False},
)
