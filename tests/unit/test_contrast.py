"""Stuck configurations against finished ones: which difference is the smallest that explains it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from inductoscope.hangs.choices.contrast import contrast


def matmul(m: int, n: int, k: int, warps: int, stages: int = 3) -> dict[str, int]:
    return {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "num_warps": warps, "num_stages": stages}


def texts(*args: list[dict[str, int]]) -> list[str]:
    return [condition.text for condition in contrast(*args)]


def test_one_value_that_all_stuck_ones_have_and_no_finished_one(
    snapshot: SnapshotAssertion,
) -> None:
    stuck = [matmul(64, 64, 32, 8), matmul(128, 64, 16, 8, 4)]
    finished = [matmul(64, 64, 32, 4), matmul(128, 64, 16, 4, 4), matmul(16, 16, 16, 1)]
    (condition,) = contrast(stuck, finished)
    assert condition.text == "num_warps=8"
    assert condition.counts == snapshot
    assert condition.separates


def test_several_large_values_are_a_bound() -> None:
    stuck = [matmul(64, 64, 128, 4), matmul(64, 64, 256, 4)]
    assert texts(stuck, [matmul(64, 64, 16, 4), matmul(64, 64, 64, 4)])[0] == "BLOCK_K≥128"


def test_a_pair_where_neither_value_is_enough() -> None:
    stuck = [matmul(64, 64, 32, 8, 5)]
    finished = [matmul(64, 64, 32, 8, 2), matmul(64, 64, 32, 4, 5)]
    assert texts(stuck, finished) == ["num_warps=8 and num_stages=5"]


def test_a_product_of_block_sizes_where_no_single_one_separates() -> None:
    stuck = [matmul(256, 128, 32, 4), matmul(128, 256, 32, 4)]
    finished = [matmul(256, 32, 32, 4), matmul(32, 256, 32, 4), matmul(128, 128, 32, 4)]
    assert texts(stuck, finished)[0] == "BLOCK_M·BLOCK_N≥32768"


def test_what_a_matrix_product_keeps_in_shared_memory() -> None:
    stuck = [matmul(128, 64, 64, 4, 4), matmul(64, 64, 128, 4, 3), matmul(64, 128, 32, 8, 8)]
    finished = [matmul(128, 64, 64, 4, 2), matmul(64, 64, 128, 4, 2), matmul(64, 128, 32, 8, 4)]
    assert "(BLOCK_M + BLOCK_N)·BLOCK_K·num_stages≥49152" in texts(stuck, finished)


def test_where_the_data_does_not_decide_each_candidate_says_what_would() -> None:
    stuck = [matmul(128, 64, 32, 8)]
    finished = [matmul(64, 64, 32, 4), matmul(32, 64, 32, 4)]
    first, second = contrast(stuck, finished)
    assert (first.text, second.text) == ("num_warps=8", "BLOCK_M=128")
    assert first.decided_by.startswith("a choice with num_warps=8 and BLOCK_M≠128")
    assert second.decided_by.startswith("a choice with BLOCK_M=128 and num_warps≠8")


def test_nothing_to_compare_with_is_no_condition() -> None:
    assert contrast([matmul(64, 64, 32, 8)], []) == []
    assert contrast([], [matmul(64, 64, 32, 8)]) == []


def test_the_same_configuration_on_both_sides_separates_nothing() -> None:
    same = matmul(64, 64, 32, 8)
    assert contrast([same], [same]) == []


def test_a_value_that_comes_close_is_named_with_its_exceptions(snapshot: SnapshotAssertion) -> None:
    stuck = [matmul(64, 64, 32, 8), matmul(64, 64, 64, 8), matmul(64, 64, 16, 8)]
    finished = [matmul(64, 64, 32, 4)] * 7 + [matmul(64, 64, 32, 8)]
    (condition,) = contrast(stuck, finished)
    assert condition.text == "num_warps=8"
    assert not condition.separates
    assert condition.counts == snapshot


def test_true_is_not_one() -> None:
    assert [c.text for c in contrast([{"EVEN_K": True}], [{"EVEN_K": False}])] == ["EVEN_K=True"]
    assert contrast([{"kpack": 1}], [{"kpack": True}]) != []


sizes = st.sampled_from([16, 32, 64, 128, 256])
configurations = st.lists(
    st.builds(matmul, sizes, sizes, sizes, st.sampled_from([1, 2, 4, 8]), st.integers(1, 5)),
    max_size=8,
)


@settings(max_examples=200, deadline=None)
@given(configurations, configurations)
def test_a_condition_that_is_said_to_separate_does(stuck: list, finished: list) -> None:
    for condition in contrast(stuck, finished):
        holds = [condition.holds(config) for config in stuck]
        others = [condition.holds(config) for config in finished]
        assert (sum(holds), sum(others)) == (condition.stuck, condition.finished)
        assert condition.separates == (all(holds) and not any(others))
        config = stuck[0]
        assert eval(condition.python("config"), {"config": config}) == condition.holds(config)
