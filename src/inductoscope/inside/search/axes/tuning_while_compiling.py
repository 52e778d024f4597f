"""Kernels launched while they are compiled, on inputs that Inductor makes up."""

from inductoscope.inside.search.axis import Situation, setting_axis
from inductoscope.torch_facts import stages


def _has_cpp_wrapper_on_gpu(situation: Situation) -> bool:
    return not situation.is_on_cpu and bool(situation.flow)


AXIS = setting_axis(
    "tuning while compiling",
    stages.AUTOTUNE,
    "launches of kernels on made-up inputs while they are compiled",
    loss=1,
    rank=155,
    applies=_has_cpp_wrapper_on_gpu,
    settings={"triton.autotune_at_compile_time": False},
)
