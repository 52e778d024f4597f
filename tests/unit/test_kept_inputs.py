"""Graphs are timed alone with the arguments that the program gave its compiled functions."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from inductoscope.inside.profiling import alternating_calls
from inductoscope.inside.profiling.alternating_calls import KeptInputs, form_of


def test_arguments_come_back_with_their_values_and_strides(tmp_path: Path) -> None:
    indices, image = torch.tensor([3, 1, 2]), torch.randn(4, 5).t()
    KeptInputs(tmp_path).keep((indices,), {"more": [image]})
    found = alternating_calls.kept_inputs(tmp_path)
    assert torch.equal(found[form_of(indices)], indices)
    assert found[form_of(image)].stride() == (1, 5)
    assert torch.equal(found[form_of(image)], image)


def test_what_a_call_changes_is_kept_as_it_was_before(tmp_path: Path) -> None:
    table = torch.zeros(3)
    KeptInputs(tmp_path).keep((table,), {})
    table += 1
    assert alternating_calls.kept_inputs(tmp_path)[form_of(table)].sum() == 0


def test_of_arguments_of_one_form_the_first_is_kept(tmp_path: Path) -> None:
    kept = KeptInputs(tmp_path)
    for value in (1.0, 2.0):
        kept.keep((torch.full((8,), value),), {})
    (tensor,) = alternating_calls.kept_inputs(tmp_path).values()
    assert tensor.tolist() == [1.0] * 8
    assert len(list(tmp_path.iterdir())) == 1


def test_a_part_of_a_large_tensor_does_not_bring_the_rest(tmp_path: Path) -> None:
    KeptInputs(tmp_path).keep((torch.zeros(1 << 20)[:4],), {})
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 1 << 16


def test_what_does_not_fit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternating_calls, "_MOST_BYTES", 100)
    KeptInputs(tmp_path).keep((torch.zeros(20), torch.zeros(30)), {})
    assert [tensor.numel() for tensor in alternating_calls.kept_inputs(tmp_path).values()] == [20]


def test_a_view_that_overlaps_itself_is_left_out(tmp_path: Path) -> None:
    KeptInputs(tmp_path).keep((torch.zeros(1).expand(8), torch.ones(2)), {})
    assert [tensor.tolist() for tensor in alternating_calls.kept_inputs(tmp_path).values()] == [
        [1.0, 1.0]
    ]


def test_a_file_that_was_not_written_to_its_end_is_passed_over(tmp_path: Path) -> None:
    KeptInputs(tmp_path).keep((torch.ones(2),), {})
    (tmp_path / "1-1.pt").write_bytes(b"PK\x03\x04")
    assert len(alternating_calls.kept_inputs(tmp_path)) == 1
