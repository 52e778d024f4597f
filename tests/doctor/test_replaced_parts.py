"""A decomposition or a lowering that the program has put in torch's place is named as its own."""

from __future__ import annotations

import pytest
import torch
from torch._inductor.decomposition import decompositions
from torch._inductor.lowering import lowerings

from inductoscope.doctor.search.replaced_parts import replaced_parts

HARDSWISH = torch.ops.aten.hardswish.default


def bad(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize(
    ("kind", "table"), [("decomposition", decompositions), ("lowering", lowerings)]
)
def test_code_of_the_program_is_named_with_its_line(
    kind: str, table: dict[object, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(table, HARDSWISH, bad)
    place = f"bad ({__file__}:{bad.__code__.co_firstlineno})"
    assert replaced_parts([str(HARDSWISH), "aten.relu.default"]) == [
        f"the {kind} of aten.hardswish.default in use is {place}, not torch's"
    ]


def test_torchs_own_code_is_not() -> None:
    assert replaced_parts([str(HARDSWISH), "aten.relu.default", "aten.tanh.default"]) == []
