"""Kernels chosen by timing them."""

from inductoscope.doctor.search.axis import setting_axis

AXIS = setting_axis(
    "autotune",
    "autotune",
    "the choice of kernels by timing",
    loss=3,
    settings={"max_autotune": False, "max_autotune_gemm": False, "max_autotune_pointwise": False},
)
