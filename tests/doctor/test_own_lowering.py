"""A lowering that the program has registered itself: it is said to be the program's own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch._inductor import compile_fx, lowering
from torch._inductor.utils import run_and_get_code

from inductoscope.doctor.failure import Location
from inductoscope.inside.workarounds import _proposals
from inductoscope.torch_facts import stages
from support.programs import Workplace

# Its two inputs have neither the same type nor the same shape: what `register_lowering` puts
# around it makes them so.
PROGRAM = """\
import sys, torch
from torch._inductor.ir import Pointwise
from torch._inductor.lowering import register_lowering
from torch._inductor.virtualized import ops

@register_lowering(torch.ops.aten.atan2.default, broadcast=True)
def own_atan2(y, x):
    load_y, load_x = y.make_loader(), x.make_loader()

    def inner(index):
        return ops.mul(ops.atan2(load_y(index), load_x(index)), ops.constant(1.5, y.get_dtype()))

    return Pointwise.create(
        device=y.get_device(), dtype=y.get_dtype(), inner_fn=inner, ranges=list(y.get_size())
    )

def model(y, x):
    return torch.relu(torch.atan2(y, x))

y, x = torch.arange(1, 7, dtype=torch.int32).reshape(2, 3), torch.rand(3) + 1
ok = torch.allclose(model(y, x), torch.compile(model)(y, x), atol=1e-4)
sys.exit(0 if ok else 1)
"""


def test_its_place_is_named_and_the_script_holds_it_with_what_torch_puts_around_it(
    workplace: Workplace,
) -> None:
    workplace.write("model.py", PROGRAM)
    verdict = workplace.doctor("model.py").verdict
    assert (verdict["verdict"], verdict["culprit"]["op"]) == ("wrong-result", "aten.atan2.default")
    assert (
        "because of aten.atan2.default, whose lowering is the program's own, own_atan2 at model.py:"
    ) in verdict["summary"]
    assert verdict["repro"]["verified"]
    text = Path(verdict["repro"]["path"]).read_text()
    assert "register_lowering(torch.ops.aten.atan2.default, broadcast=True, " in text


# --- A lowering that the program puts into torch itself can still be done without -----------------


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
