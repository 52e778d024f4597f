"""In a fused kernel that is wrong, the operations that are wrong on their own are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._inductor.codegen import cpp

from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.wrong_result_location import locate_wrong_result
from support.graphs import captured

Function = Callable[[torch.Tensor], torch.Tensor]


@pytest.mark.parametrize(
    ("name", "function", "backward"),
    [
        # The buffer that is wrong first is the sum of what is wrong.
        ("exp", lambda x: torch.softmax(x, dim=-1) * 2, False),
        ("tanh", lambda x: torch.nn.functional.gelu(x, approximate="tanh") + 1, False),
        # Not in the forward graph: the derivative of a gelu is a normal distribution.
        ("exp", lambda x: torch.nn.functional.gelu(x) * 2, True),
    ],
    ids=["softmax", "gelu", "the backward of gelu"],
)
def test_vector_code_of_one_operation_is_wrong(
    monkeypatch: pytest.MonkeyPatch, name: str, function: Function, backward: bool
) -> None:
    right = getattr(cpp.CppVecOverrides, name)
    wrong = staticmethod(lambda x: f"({right(x)} + decltype({x})(0.05))")
    monkeypatch.setattr(cpp.CppVecOverrides, name, wrong)
    torch.manual_seed(0)
    x = torch.randn(8, 64, requires_grad=backward)
    candidate = Candidate(captured(function, x), (x,), backward=backward)
    found = locate_wrong_result(candidate, Forks(), "value", closely=True)
    assert found.stage == "codegen"
    assert found.wrong_alone == (f"aten.{name}.default",)
    assert found.operation not in found.wrong_alone, "the kernel ends with another one"
