"""A lowering that the program puts into torch itself can still be done without."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import compile_fx, lowering
from torch._inductor.utils import run_and_get_code

from inductoscope.doctor.failure import Location
from inductoscope.inside.workarounds import _proposals
from inductoscope.torch_facts import stages


def test_the_workaround_holds_after_the_program_has_replaced_the_lowering(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called = []
    operation = torch.ops.aten.erf.default
    original = lowering.lowerings[operation]

    def careful_erf(*args: object, **kwargs: object) -> object:
        called.append(args)
        return original(*args, **kwargs)

    place = Location(stages.LOWERING, str(operation), function="careful_erf (/home/me/model.py:7)")
    (code, *_) = [each.code for each in _proposals(place, ()) if "erf" in each.text]
    inner = compile_fx._compile_fx_inner
    monkeypatch.setattr(compile_fx, "_compile_fx_inner", inner)
    for table in ("lowerings", "fallbacks"):
        monkeypatch.setattr(lowering, table, getattr(lowering, table).copy())

    exec(f"import torch\n{code}", {})
    lowering.lowerings[operation] = careful_erf  # As the program does, later.
    with torch._inductor.config.patch(fx_graph_cache=False):
        _, (text,) = run_and_get_code(torch.compile(lambda x: torch.erf(x) + 1), torch.randn(8))
    assert "torch.ops.aten.erf.default" in text
    assert not called
