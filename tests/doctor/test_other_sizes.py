"""A package at sizes that the program does not use: which are tried, and what a wrong one says.

The package is a function here that is wrong at some sizes, so that nothing has to be compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.export import Dim
from torch.fx import GraphModule

from inductoscope.inside.search import other_sizes as sizes_to_try
from inductoscope.inside.search.other_sizes import call_at_other_sizes, exported_sizes, other_sizes


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (x * 2 + y,)


def exported(rows: Any) -> tuple[GraphModule, tuple[torch.Tensor, ...]]:
    inputs = torch.arange(48.0).reshape(6, 8), torch.ones(8)
    program = torch.export.export(Doubled(), inputs, dynamic_shapes=({0: rows}, None))
    return program.graph_module, inputs


def compiled(wrong_at: int) -> Callable[..., Any]:
    def call(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        return (x * 2 + y + (len(x) == wrong_at),)

    return call


def admits_all(values: Any) -> bool:
    return True


def test_both_ends_and_where_vectors_end_are_tried() -> None:
    module, inputs = exported(torch.export.Dim("rows", min=2, max=64))
    sizes = list(other_sizes(module, inputs))
    assert [size.value for size in sizes] == [2, 64, 63, 17, 15, 16]
    assert sizes[0].text.endswith("(dimension 0 of input x) = 2; the export admits 2 to 64")
    assert [size.inputs[0].shape[0] for size in sizes] == [2, 64, 63, 17, 15, 16]
    # The program's own values, so that an index stays one that it could have.
    assert torch.equal(sizes[1].inputs[0][6:12], inputs[0])
    assert sizes[1].inputs[1] is inputs[1]


def test_only_sizes_that_the_export_admits() -> None:
    module, inputs = exported(2 * torch.export.Dim("half", min=1, max=8))
    assert all(size.inputs[0].shape[0] % 2 == 0 for size in other_sizes(module, inputs))
    fixed, own = exported(None)
    assert list(other_sizes(fixed, own)) == []


@pytest.mark.parametrize(("wrong_at", "value"), [(17, 17), (64, 64), (6, None), (100, None)])
def test_a_size_at_which_it_is_wrong(wrong_at: int, value: int | None) -> None:
    module, inputs = exported(torch.export.Dim("rows", min=2, max=64))
    found = call_at_other_sizes(module, compiled(wrong_at), inputs, admits_all)
    assert (found.wrong.value if found.wrong else None) == value
    assert found.called[0].endswith(" = 2")


def test_what_eager_does_not_take_is_no_fault_of_the_package() -> None:
    module, inputs = exported(torch.export.Dim("rows", min=2, max=64))

    def call(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        raise RuntimeError("never called")

    found = call_at_other_sizes(module, call, inputs, lambda values: False)
    assert (found.called, found.wrong) == ((), None)


def test_inputs_are_made_where_they_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the fork, one size at a time: together they may be larger than the memory."""
    module, inputs = exported(torch.export.Dim("rows", min=2, max=64))
    made: list[torch.Tensor] = []
    resized = sizes_to_try._resized

    def counted(*given: Any) -> torch.Tensor | None:
        made.extend(given[1:2])
        return resized(*given)

    monkeypatch.setattr(sizes_to_try, "_resized", counted)
    found = call_at_other_sizes(module, compiled(100), inputs, admits_all)
    assert (len(found.called), len(made)) == (6, 1)


def test_torchs_own_check_for_nan_is_no_fault_of_the_package() -> None:
    module, inputs = exported(torch.export.Dim("rows", min=2, max=64))

    def call(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor]:
        raise RuntimeError("At least one NaN in arg0_1")

    found = call_at_other_sizes(module, call, (inputs[0] * torch.nan, inputs[1]), admits_all)
    assert (found.called, found.wrong) == ((), None)
    # Without NaN in eager it is.
    assert call_at_other_sizes(module, call, inputs, admits_all).wrong is not None


# --- Sizes that an exported program leaves open are kept when its graph is compiled again ---------


class Joined(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y.sum(1, keepdim=True)


def test_bounds_are_said_once_for_a_size_that_two_inputs_share() -> None:
    batch = Dim("batch", min=2, max=64)
    shapes = {"x": {0: batch}, "y": {0: batch, 1: Dim("width")}}
    inputs = torch.randn(6, 4), torch.randn(6, 5)
    program = torch.export.export(Joined(), inputs, dynamic_shapes=shapes)
    marks = [str(mark) for mark in exported_sizes(program.graph_module)]
    assert marks[:2] == ["mark_dynamic(x, 0, min=2, max=64)", "maybe_mark_dynamic(y, 0)"]
    assert marks[2].startswith("mark_dynamic(y, 1")


def test_a_program_of_one_size_has_no_marks() -> None:
    program = torch.export.export(Joined(), (torch.randn(6, 4), torch.randn(6, 5)))
    assert exported_sizes(program.graph_module) == ()
