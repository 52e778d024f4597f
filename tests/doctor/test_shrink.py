"""A failure in its commonest clothes: types and numbers that it does not need are replaced.

What is planted is a lowering that raises. The oracle then need not compile any C++: it compiles no
farther than to the stage that fails.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch._inductor.compile_fx
from torch._inductor.lowering import lowerings
from torch.fx import symbolic_trace

from inductoscope.doctor.failure import Failure
from inductoscope.inside.search.candidate import Candidate, name_of
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.location import worth_trying
from inductoscope.inside.search.oracle import Oracle, examine, no_further_than
from inductoscope.inside.search.shrink import (
    CONSTANTS,
    DTYPES,
    NODES,
    OUTPUTS,
    PASSES_AROUND_GRAPH,
    SETTINGS,
    SHAPES,
    SHRINK_PASSES,
    Proposals,
    ShrinkPass,
    Subject,
    apply_pass,
    apply_passes,
)

aten = torch.ops.aten
Plant = Callable[[Any, Callable[..., bool]], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Makes the lowering of an operation raise for some arguments."""

    def plant(operation: Any, is_refused: Callable[..., bool]) -> None:
        original = lowerings[operation]

        def planted_lowering(*arguments: Any, **named: Any) -> Any:
            if is_refused(*arguments):
                raise NotImplementedError("planted")
            return original(*arguments, **named)

        monkeypatch.setitem(lowerings, operation, planted_lowering)

    return plant


@pytest.fixture(scope="module")
def _warm() -> None:
    """The first compile loads and prepares much; done here, no fork has to do it anew."""
    examine(Candidate(symbolic_trace(lambda x: x.cos()), (torch.ones(4),)), up_to_lowering)


def up_to_lowering() -> contextlib.AbstractContextManager[None]:
    return no_further_than("lowering")


@pytest.fixture
def oracle(_warm: None) -> Oracle:
    return Oracle(Forks(workers=2, seconds=120.0), stage="lowering")


def failure_of(candidate: Candidate, oracle: Oracle) -> Failure:
    found = oracle.failure(candidate)
    assert found is not None
    assert found.function == "planted_lowering"
    return found


def dtypes(candidate: Candidate) -> list[torch.dtype]:
    return [value.dtype for value in candidate.inputs]


# --- the engine -----------------------------------------------------------------------------------


def test_every_pass_has_a_name_of_its_own() -> None:
    assert len({one.name for one in SHRINK_PASSES}) == len(SHRINK_PASSES)


class Predicate(Oracle):
    """Judges candidates without a compiler, and counts them."""

    def __init__(self, shows: Callable[[Candidate], bool]) -> None:
        super().__init__(Forks(workers=1))
        self._shows = shows
        self.tried = 0

    def first(self, candidates: Sequence[Candidate | None], failure: Failure) -> int | None:
        for number, candidate in enumerate(candidates):
            if candidate is not None:
                self.tried += 1
                if self._shows(candidate):
                    return number
        return None


def calls(candidate: Candidate) -> list[str]:
    return [name_of(node) for node in candidate.operations]


def a_chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(7):
        x = x.neg().abs()
    return x.sin().exp()


CHAIN = Subject(Candidate(symbolic_trace(a_chain), (torch.ones(64),)), Failure("error", "text"))


def test_one_node_of_many_is_found_in_a_few_trials() -> None:
    oracle = Predicate(lambda candidate: "sin" in calls(candidate))
    found = apply_pass(NODES, CHAIN, oracle)
    assert calls(found) == ["sin"]
    assert oracle.tried <= 10


def test_a_suspect_that_is_enough_is_found_at_once() -> None:
    oracle = Predicate(lambda candidate: "sin" in calls(candidate))
    found = apply_pass(NODES, replace(CHAIN, suspects=[["exp"], ["sin"]]), oracle)
    assert calls(found) == ["sin"]
    # Each suspect is tried with small inputs first: exp small, exp, sin small.
    assert oracle.tried == 3
    assert found.inputs[0].numel() == 2


def test_the_strongest_suspicion_comes_first_even_where_another_has_fewer_nodes() -> None:
    oracle = Predicate(lambda candidate: True)
    found = apply_pass(NODES, replace(CHAIN, suspects=[["sin", "exp"], ["neg"]]), oracle)
    assert calls(found) == ["sin"]


def takes_sin_and_exp(candidate: Candidate) -> bool:
    return {"sin", "exp"} <= {*calls(candidate)}


def test_where_no_suspect_is_enough_the_kernel_is() -> None:
    oracles = Predicate(takes_sin_and_exp), Predicate(takes_sin_and_exp)
    subject = replace(CHAIN, suspects=[["sin"]])
    of_kernel = ["abs_7", "sin", "exp"]
    kept = [
        calls(apply_pass(NODES, each, oracle))
        for each, oracle in zip(
            (replace(subject, of_kernel=of_kernel), subject), oracles, strict=True
        )
    ]
    assert kept == [["sin", "exp"], ["sin", "exp"]]
    assert oracles[0].tried < oracles[1].tried


def test_where_the_kernel_is_not_enough_either_the_whole_graph_is_searched() -> None:
    oracle = Predicate(takes_sin_and_exp)
    subject = replace(CHAIN, suspects=[["sin"]], of_kernel=["abs_7", "sin"])
    assert calls(apply_pass(NODES, subject, oracle)) == ["sin", "exp"]


def test_of_nodes_that_seem_wrong_alone_the_first_of_each_operation_is_tried_and_few_of_them() -> (
    None
):
    every = [node.name for node in CHAIN.candidate.operations]
    assert worth_trying(CHAIN.candidate, every) == ["neg", "abs_1", "sin"]
    assert worth_trying(CHAIN.candidate, ["exp", "exp", "exp", "sin"]) == ["sin", "exp"]
    assert worth_trying(CHAIN.candidate, ["no node of the graph"]) == []


def test_the_same_candidate_twice_is_tried_once(oracle: Oracle) -> None:
    one = Candidate(symbolic_trace(lambda x: x.sin()), (torch.ones(4),))
    other = Candidate(symbolic_trace(lambda x: x.cos()), (torch.ones(4),))
    assert dict(oracle.as_known([one, other, replace(one)])) == {0: None, 1: None, 2: None}
    assert oracle.forks.count == 2


def test_a_proposal_that_is_not_simpler_is_not_tried() -> None:
    oracle = Predicate(lambda candidate: True)
    same = replace(CHAIN.candidate, inputs=(torch.zeros(64),))

    def propose(subject: Subject) -> Proposals:
        found = yield [same, None]
        assert found is None
        return None

    planted = ShrinkPass("planted", "text", lambda candidate: candidate.size, propose)
    assert apply_pass(planted, CHAIN, oracle) is CHAIN.candidate
    assert not oracle.mistakes
    assert oracle.tried == 0


def test_what_was_found_before_a_pass_fails_is_kept_and_the_others_go_on() -> None:
    smaller = Candidate(symbolic_trace(lambda x: x.sin() * 3.7), (torch.ones(64),))

    def propose(subject: Subject) -> Proposals:
        yield [smaller]
        raise ZeroDivisionError

    failing = ShrinkPass("failing", "text", lambda candidate: candidate.size, propose)
    oracle = Predicate(lambda candidate: True)
    *_, last = apply_passes(CHAIN, oracle, [failing, CONSTANTS])
    assert numbers_in(last.candidate) == [1.0]
    assert "ZeroDivisionError" in oracle.mistakes[0]


def test_progress_says_what_is_done_next_with_the_smallest_so_far() -> None:
    oracle = Predicate(lambda candidate: "sin" in calls(candidate))
    seen = [(step.candidate.size, step.text) for step in apply_passes(CHAIN, oracle, SHRINK_PASSES)]
    assert seen[0] == (16, "looking for the smallest part of 16 nodes")
    assert seen[1] == (1, "leaving out outputs (nodes left: 1)")
    assert seen[-1] == (1, "")


def test_the_smallest_of_all_is_simple_in_every_way() -> None:
    oracle = Predicate(lambda candidate: "sin" in calls(candidate))
    *_, last = apply_passes(CHAIN, oracle, SHRINK_PASSES)
    assert last.candidate.inputs[0].shape == (2,)
    assert last.candidate.recipes == ("torch.randn(2)",)
    assert oracle.tried <= 14


def test_all_that_is_around_the_graph_is_simplified_in_one_trial() -> None:
    oracle = Predicate(lambda candidate: "sin" in calls(candidate))
    one_by_one = Predicate(lambda candidate: "sin" in calls(candidate))
    *_, last = apply_passes(CHAIN, oracle, SHRINK_PASSES, PASSES_AROUND_GRAPH)
    *_, same = apply_passes(CHAIN, one_by_one, SHRINK_PASSES)
    assert (last.candidate.recipes, calls(last.candidate)) == (same.candidate.recipes, ["sin"])
    assert oracle.tried < one_by_one.tried


def test_where_the_failure_needs_some_of_that_each_pass_gets_its_turn() -> None:
    def shows(candidate: Candidate) -> bool:
        return "sin" in calls(candidate) and candidate.inputs[0].shape[0] >= 8

    *_, last = apply_passes(CHAIN, Predicate(shows), SHRINK_PASSES, PASSES_AROUND_GRAPH)
    assert last.candidate.inputs[0].shape == (8,)
    assert last.candidate.recipes == ("torch.randn(8)",)


def test_one_output_of_many_is_found_by_halving() -> None:
    def many(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (*(x + number for number in range(8)), x.sin())

    oracle = Predicate(lambda candidate: "sin" in calls(candidate))
    subject = Subject(Candidate(symbolic_trace(many), (torch.ones(4),)), Failure("error", "text"))
    assert calls(apply_pass(OUTPUTS, subject, oracle)) == ["sin"]
    assert oracle.tried <= 8


def test_the_output_that_is_known_to_be_wrong_is_tried_first() -> None:
    module = symbolic_trace(lambda x: (x.cos(), x.neg(), x.sin()))
    oracle = Predicate(lambda candidate: "sin" in calls(candidate))
    failure = Failure("wrong", "text", where=("output 2",))
    found = apply_pass(OUTPUTS, Subject(Candidate(module, (torch.ones(4),)), failure), oracle)
    assert calls(found) == ["sin"]
    assert oracle.tried == 1


def test_settings_that_the_failure_does_not_need_are_left_out() -> None:
    oracle = Predicate(lambda candidate: "needed" in candidate.options)
    candidate = replace(CHAIN.candidate, options={"needed": 1, "other": 2}, dynamic=True)
    found = apply_pass(SETTINGS, replace(CHAIN, candidate=candidate), oracle)
    assert (found.options, found.dynamic) == ({"needed": 1}, None)
    assert oracle.tried <= 5


def test_each_size_is_as_small_as_the_failure_allows() -> None:
    oracle = Predicate(lambda candidate: candidate.inputs[0].shape[0] >= 17)
    inputs = (torch.ones(100, 60),)
    subject = replace(CHAIN, candidate=replace(CHAIN.candidate, inputs=inputs))
    found = apply_pass(SHAPES, subject, oracle)
    assert found.inputs[0].shape == (17, 2)
    assert oracle.tried <= 8


# --- types ----------------------------------------------------------------------------------------


def of_two_types(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return x.sin() + n


def test_types_that_the_failure_does_not_need_become_the_commonest(
    plant: Plant, oracle: Oracle
) -> None:
    plant(aten.sin.default, lambda x: True)
    inputs = (torch.ones(4, dtype=torch.float64), torch.arange(4, dtype=torch.int32))
    candidate = Candidate(symbolic_trace(of_two_types), inputs)
    found = apply_pass(DTYPES, Subject(candidate, failure_of(candidate, oracle)), oracle)
    assert dtypes(found) == [torch.float32, torch.int64]
    assert [value.tolist() for value in found.inputs] == [[1, 1, 1, 1], [0, 1, 2, 3]]


def test_a_type_that_the_failure_needs_stays_and_the_other_does_not(
    plant: Plant, oracle: Oracle
) -> None:
    plant(aten.sin.default, lambda x: x.get_dtype() is torch.bfloat16)
    inputs = (torch.ones(4, dtype=torch.bfloat16), torch.arange(4, dtype=torch.int32))
    candidate = Candidate(symbolic_trace(of_two_types), inputs)
    found = apply_pass(DTYPES, Subject(candidate, failure_of(candidate, oracle)), oracle)
    assert dtypes(found) == [torch.bfloat16, torch.int64]


def of_three_types(x: torch.Tensor, y: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
    return x.sin() + y + n


def test_all_types_but_the_one_that_the_failure_needs_become_the_commonest(
    plant: Plant, oracle: Oracle
) -> None:
    plant(aten.sin.default, lambda x: x.get_dtype() is torch.bfloat16)
    inputs = (torch.ones(4).bfloat16(), torch.ones(4).double(), torch.arange(4).int())
    candidate = Candidate(symbolic_trace(of_three_types), inputs)
    found = apply_pass(DTYPES, Subject(candidate, failure_of(candidate, oracle)), oracle)
    assert dtypes(found) == [torch.bfloat16, torch.float32, torch.int64]


def test_where_all_types_are_common_nothing_is_tried(oracle: Oracle) -> None:
    inputs = (torch.ones(4), torch.arange(4))
    candidate = Candidate(symbolic_trace(of_two_types), inputs)
    assert apply_pass(DTYPES, Subject(candidate, Failure("error", "text")), oracle) is candidate
    assert oracle.forks.count == 0


def test_an_input_still_asks_for_gradients_in_its_new_type(plant: Plant, oracle: Oracle) -> None:
    plant(aten.sin.default, lambda x: True)
    inputs = (torch.ones(4, dtype=torch.float64, requires_grad=True),)
    candidate = Candidate(symbolic_trace(lambda x: x.sin()), inputs)
    found = apply_pass(DTYPES, Subject(candidate, failure_of(candidate, oracle)), oracle)
    (x,) = found.inputs
    assert (x.dtype, x.requires_grad, x.is_leaf) == (torch.float32, True, True)


# --- numbers --------------------------------------------------------------------------------------


def numbers_in(candidate: Candidate) -> list[Any]:
    return [
        argument
        for node in candidate.operations
        for argument in node.args
        if isinstance(argument, (int, float))
    ]


def with_numbers(x: torch.Tensor) -> torch.Tensor:
    return ((x * 3.7).sin() + 12.25) * 1000 + 8


def test_odd_numbers_become_simple(plant: Plant, oracle: Oracle) -> None:
    plant(aten.sin.default, lambda x: True)
    candidate = Candidate(symbolic_trace(with_numbers), (torch.ones(4),))
    found = apply_pass(CONSTANTS, Subject(candidate, failure_of(candidate, oracle)), oracle)
    # The 8 is small and may well be a size: it stays.
    assert numbers_in(found) == [1.0, 1.0, 1, 8]
    assert [type(number) for number in numbers_in(found)] == [float, float, int, int]
    assert numbers_in(candidate) == [3.7, 12.25, 1000, 8]


def test_a_number_that_the_failure_needs_stays(plant: Plant, oracle: Oracle) -> None:
    plant(aten.mul.Tensor, lambda x, by: by == 3.7)
    candidate = Candidate(symbolic_trace(lambda x: x.sin() * 3.7 + 12.25), (torch.ones(4),))
    found = apply_pass(CONSTANTS, Subject(candidate, failure_of(candidate, oracle)), oracle)
    assert numbers_in(found) == [3.7, 1.0]


def test_the_simplest_number_that_keeps_the_failure_is_taken(plant: Plant, oracle: Oracle) -> None:
    plant(aten.mul.Tensor, lambda x, by: by > 1)
    candidate = Candidate(symbolic_trace(lambda x: x.sin() * 3.7), (torch.ones(4),))
    found = apply_pass(CONSTANTS, Subject(candidate, failure_of(candidate, oracle)), oracle)
    assert numbers_in(found) == [2.0]


def test_where_all_numbers_are_simple_nothing_is_tried(oracle: Oracle) -> None:
    candidate = Candidate(symbolic_trace(lambda x: x * 2 + 0.5 - 1), (torch.ones(4),))
    assert apply_pass(CONSTANTS, Subject(candidate, Failure("error", "text")), oracle) is candidate
    assert oracle.forks.count == 0
