"""Kernels chosen by timing them."""

from inductoscope.inside.search.axis import Situation, setting_axis
from inductoscope.torch_facts import stages


def _is_asked_for(situation: Situation) -> bool:
    return any(situation.settings.get(name) for name in ("max_autotune", "max_autotune_gemm"))


AXIS = setting_axis(
    "autotuning",
    stages.AUTOTUNE,
    "the choice of kernels by timing",
    loss=3,
    rank=160,
    applies=_is_asked_for,
    settings={"max_autotune": False, "max_autotune_gemm": False, "max_autotune_pointwise": False},
)
