"""Sizes that an exported program leaves open are kept when its graph is compiled again."""

from __future__ import annotations

import torch
from torch.export import Dim

from inductoscope.inside.search.other_sizes import exported_sizes


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
