"""Copies of inputs: they share memory, ask for gradients and change type as the originals do."""

from __future__ import annotations

import torch

from inductoscope.inside.compare.values import copy_values, size_in_bytes
from support.judging import judged, numbers


def test_tensors_that_share_memory_share_it_in_the_copies_too() -> None:
    whole = torch.zeros(4, 4)
    row, column, other = copy_values([whole[1], whole[:, 1], torch.zeros(2)])
    row.fill_(1)
    assert column.tolist() == [0, 1, 0, 0]
    assert (row.stride(), column.stride(), column.storage_offset()) == ((1,), (4,), 1)
    assert other.tolist() == [0, 0]
    assert not whole.any()


def test_the_same_tensor_twice_is_the_same_memory_twice() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 10

    x = torch.zeros(3)
    comparison = judged(function, lambda x, y: [x.add_(1), y.clone() * 10][1], x, x)
    assert comparison.is_right
    comparison = judged(function, lambda x, y: [y * 10, x.add_(1)][0], x, x)
    assert [difference.where for difference in comparison.wrong] == ["output 0"]


def test_a_copy_in_float64_changes_floating_point_tensors_only() -> None:
    whole = torch.arange(6, dtype=torch.float32)
    values = [whole[::2], torch.arange(3), torch.ones(2, dtype=torch.complex64), True, "text"]
    copies = copy_values(values, dtype=torch.float64)
    dtypes = [value.dtype for value in copies[:3]]
    assert dtypes == [torch.float64, torch.int64, torch.complex128]
    assert copies[0].tolist() == [0, 2, 4]
    assert copies[3:] == [True, "text"]


def test_a_copy_asks_for_gradients_where_the_original_does() -> None:
    x, y = copy_values([numbers(2).requires_grad_(), numbers(2)])
    assert (x.requires_grad, x.is_leaf, y.requires_grad) == (True, True, False)


def test_a_copy_of_a_sparse_tensor_is_a_sparse_tensor() -> None:
    sparse = torch.eye(3).to_sparse()
    (copy,) = copy_values([sparse])
    assert copy.layout is torch.sparse_coo
    assert torch.equal(copy.to_dense(), torch.eye(3))


def test_shared_memory_is_counted_once() -> None:
    whole = torch.zeros(100)
    assert size_in_bytes([whole, whole[:10], torch.zeros(5), "text"]) == 420
