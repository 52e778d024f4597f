"""Each variant of a graph is compiled as it says, and leaves nothing behind for the next."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._inductor.utils import run_and_get_code

from inductoscope.inside.profiling.prediction_child import _compiled, _Variant
from inductoscope.profiling.flips import LEAVE


def pool(rows: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
    return torch.zeros(7, rows.shape[1]).index_add(0, classes, rows * 2)


def test_an_operation_is_left_to_eager_for_one_variant_only() -> None:
    inputs = torch.randn(40, 5), torch.arange(40) % 7

    def code_with(variant: _Variant) -> str:
        seen: list[str] = []

        def call(function: Callable[..., Any]) -> int:
            seen.extend(run_and_get_code(function, *inputs)[1])
            return 0

        _compiled(pool, variant, call)
        return "".join(seen)

    settings = {"fx_graph_cache": False}
    leave = LEAVE.format(name="index_add")
    codes = [code_with(_Variant(settings, code)) for code in ("", leave, "")]
    assert ["torch.ops.aten.index_add" in code for code in codes] == [False, True, False]
    assert ["atomic_add" in code for code in codes] == [True, False, True]
