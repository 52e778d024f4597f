"""Copies of inputs: they share memory, ask for gradients and change type as the originals do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.fx import symbolic_trace
from torch.utils._python_dispatch import TorchDispatchMode

from inductoscope.inside.compare.beside_eager import call_as_in_eager
from inductoscope.inside.compare.bug_or_rounding import judge
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.compare.values import Surroundings, copy_values, run, size_in_bytes
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import digest
from inductoscope.inside.search.program_state import current_state
from inductoscope.recording.events import NotedDifference
from support.graphs import captured
from support.judging import judged, numbers


def test_tensors_that_share_memory_share_it_in_the_copies_too() -> None:
    whole = torch.zeros(4, 4)
    row, column, other = copy_values([whole[1], whole[:, 1], torch.zeros(2)])
    row.fill_(1)
    assert column.tolist() == [0, 1, 0, 0]
    assert (row.stride(), column.stride(), column.storage_offset()) == ((1,), (4,), 1)
    assert other.tolist() == [0, 0]
    assert not whole.any()


class RunsInside(TorchDispatchMode):
    """Runs something else within each operation, as a comparison with decompositions does."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        run(torch.zeros_like, [torch.ones(2)], backward=False)
        return func(*args, **(kwargs or {}))


def test_a_run_inside_of_an_operation_does_not_wait_for_autocast() -> None:
    """Autocast holds a lock while it casts a parameter."""
    weight = torch.nn.Parameter(torch.ones(4, 4))

    def work() -> bool:
        with torch.autocast("cpu", torch.bfloat16):
            state = current_state()
        with state.entered(), RunsInside():
            torch.set_autocast_cache_enabled(True)
            return (torch.ones(4, 4) @ weight).dtype is torch.bfloat16

    assert Forks(workers=1, seconds=20).ask(work).result is True


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


# --- A program may set a default device: whatever the doctor makes for itself is not affected -----


def test_results_and_gradients_are_compared() -> None:
    x = torch.randn(20, requires_grad=True)
    with torch.device("meta"):
        case = Case(lambda x: (x.exp() * x).cumsum(0), (x,), backward=True)
        found = judge(case, case.again)
        off = replace(case.again, outputs=(case.again.outputs[0] + 0.1,))
        wrong = judge(case, off).wrong
    assert found.is_right
    assert [item.where for item in wrong] == ["output 0"]


def test_a_candidate_is_recognised() -> None:
    x = torch.randn(20)
    candidate = Candidate(captured(torch.sin, x), (x,))
    with torch.device("meta"):
        there = digest(candidate)
    assert there == digest(candidate)


def test_the_copy_of_a_program_works_in_main_memory() -> None:
    torch.set_default_device("meta")
    try:
        current_state().adopt()
        assert torch.get_default_device().type == "cpu"
    finally:
        torch.set_default_device(None)


# Results of a compiled graph are laid out in memory as eager's, to see whether that matters.


def noted(*places: str) -> list[NotedDifference]:
    """As in `noted("stride output 0")`."""
    pairs = (place.split(" ", 1) for place in places)
    return [NotedDifference(compile="0/0", aspect=one, where=other) for one, other in pairs]


def laid_out(eager: Any, compiled: Any, *inputs: torch.Tensor, notes: str) -> Any:
    return call_as_in_eager(symbolic_trace(eager), compiled, inputs, noted(*notes.split(", ")))


def test_a_result_gets_the_strides_of_eager() -> None:
    x = torch.arange(6.0).view(2, 3)
    result = laid_out(lambda x: x * 2, lambda x: (x.t() * 2).t(), x, notes="stride output 0")
    assert result.stride() == (3, 1)
    assert torch.equal(result, x * 2)


def test_gradients_pass_through() -> None:
    x = torch.arange(6.0).view(2, 3).requires_grad_()
    result = laid_out(lambda x: x * 2, lambda x: (x.t() * 2).t(), x, notes="stride output 0")
    result.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2.0] * 3] * 2


def test_a_copy_becomes_the_view_that_it_is_in_eager() -> None:
    x = torch.arange(6.0).view(2, 3)
    row = laid_out(lambda x: x[1], lambda x: x[1].clone(), x, notes="sharing output 0")
    row.zero_()
    assert x.tolist() == [[0.0, 1.0, 2.0], [0.0] * 3]


def test_a_view_becomes_the_copy_that_it_is_in_eager() -> None:
    x = torch.ones(3)
    result = laid_out(lambda x: x * 1, lambda x: x.view(3), x, notes="sharing output 0")
    result.zero_()
    assert x.tolist() == [1.0] * 3


def test_the_input_itself_is_returned_where_eager_does() -> None:
    x = torch.ones(3)
    result = laid_out(lambda x: x.add_(1), lambda x: x.add_(1).clone(), x, notes="sharing output 0")
    assert result is x
    assert x.tolist() == [2.0] * 3, "it was written to once"


def test_outputs_share_memory_as_in_eager() -> None:
    def eager(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.view(-1)

    x = torch.zeros(2, 2)
    one, two = laid_out(
        eager, lambda x: (x + 1, (x + 1).view(-1)), x, notes="sharing output 0, sharing output 1"
    )
    two[0] = 7
    assert one.tolist() == [[7.0, 1.0], [1.0, 1.0]]


def test_one_object_that_is_two_views_in_eager_becomes_two() -> None:
    """As where a no-op view is removed, and the program then resizes one of the two."""

    def eager(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y.view(-1)

    def compiled(x: torch.Tensor) -> Any:
        return (x + 1,) * 2

    one, two = laid_out(eager, compiled, torch.zeros(3), notes="sharing output 1")
    assert one is not two
    two.resize_(6)
    assert one.shape == (3,)


def test_random_numbers_and_inputs_are_those_of_one_call() -> None:
    def noise(x: torch.Tensor) -> torch.Tensor:
        return torch.rand_like(x).add_(x.mul_(2))

    x = torch.ones(4)
    torch.manual_seed(0)
    expected = run(noise, [x], backward=False).outputs[0]
    torch.manual_seed(0)
    result = laid_out(noise, noise, x, notes="stride output 0")
    assert torch.equal(result, expected)
    assert x.tolist() == [2.0] * 4


def test_surroundings_leave_what_all_threads_share_alone_where_it_is_the_same() -> None:
    """The sentinel calls graphs again while other threads of the program may change it."""
    surroundings, before = Surroundings.now(), torch.get_default_dtype()
    try:
        with surroundings.entered():
            torch.set_default_dtype(torch.float64)
        assert torch.get_default_dtype() is torch.float64
        with surroundings.entered():
            assert torch.get_default_dtype() is before
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(before)
