"""Floating point transformations that a C++ compiler may make."""

from inductoscope.inside.search.axis import setting_axis
from inductoscope.torch_facts import stages

AXIS = setting_axis(
    "fast math",
    stages.CPP_COMPILE,
    "unsafe floating point optimisation in C++",
    loss=1,
    rank=100,
    applies=lambda situation: situation.is_on_cpu,
    settings={
        "cpp.enable_unsafe_math_opt_flag": False,
        "cpp.enable_floating_point_contract_flag": "off",
    },
)
