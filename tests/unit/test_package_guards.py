"""Guards of a package on its inputs, and the sentences about inputs that break a demand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.packages.package import read_package
from inductoscope.torch_facts.package_wrappers import (
    InputFacts,
    InputGuard,
    PackageGuards,
    SizeRange,
    Symbol,
    broken,
    translate,
    value_of,
)

PACKAGE = Path(__file__).parents[1] / "data" / "packages" / "small.pt2"

# What the model was exported with: x of 2 to 64 rows, as many indices, and a scale.
X = InputFacts("float32", (6, 16), (16, 1), "cpu")
INDEX = InputFacts("int64", (6,), (1,), "cpu")
SCALE = InputFacts("float32", (8,), (1,), "cpu")


@pytest.fixture(scope="module")
def guards() -> PackageGuards:
    wrapper = read_package(PACKAGE).models[0].wrapper
    assert wrapper is not None
    return wrapper.guards


def test_demands_are_counted_as_they_are_shown() -> None:
    """A size that may be anything is no demand, even if it has a name; an alignment is one."""
    free = InputGuard(0, "x", size_expressions=("s77", "16L"), has_rank=True, sizes={})
    assert free.size_texts[0] == "s77: any size"
    assert free.count == 0
    limited = replace(free, sizes={0: SizeRange(2, 64)}, dtype="float32", aligned_to=16)
    assert limited.count == 3


def test_guards_are_read_from_the_wrapper_of_a_real_package(guards: PackageGuards) -> None:
    x, index, scale = guards.inputs
    assert (x.dtype, x.device, x.rank) == ("float32", "cpu", 2)
    assert dict(x.sizes) == {0: SizeRange(2, 64), 1: SizeRange(16, 16)}
    assert dict(x.strides) == {0: 16, 1: 1}
    # Both have the same number of rows, which no check of a single input says.
    assert x.size_expressions[0] == index.size_expressions[0]
    assert dict(scale.sizes) == {0: SizeRange(8, 8)}


def test_good_inputs_break_nothing(guards: PackageGuards) -> None:
    assert broken(guards, [X, INDEX, SCALE]) == ()
    rows = InputFacts("float32", (64, 16), (16, 1), "cpu"), InputFacts("int64", (64,), (1,), "cpu")
    assert broken(guards, [*rows, SCALE]) == ()


@pytest.mark.parametrize(
    ("x", "index", "sentences"),
    [
        (
            InputFacts("float32", (65, 16), (16, 1), "cpu"),
            InputFacts("int64", (65,), (1,), "cpu"),
            [
                "input 0 (arg4_1): dimension 0 is 65; the package accepts 2 to 64",
                "input 1 (arg5_1): dimension 0 is 65; the package accepts 2 to 64",
            ],
        ),
        (
            InputFacts("float64", (6, 16), (16, 1), "cpu"),
            INDEX,
            ["input 0 (arg4_1): has dtype float64; the package accepts float32"],
        ),
        (
            InputFacts("float32", (6, 16), (1, 6), "cpu"),
            INDEX,
            [
                "input 0 (arg4_1): stride 0 is 1; the package accepts 16",
                "input 0 (arg4_1): stride 1 is 6; the package accepts 1",
            ],
        ),
        (
            InputFacts("float32", (6, 16), (16, 1), "cuda:0"),
            INDEX,
            ["input 0 (arg4_1): is on cuda:0; the package accepts cpu"],
        ),
        (
            X,
            InputFacts("int64", (7,), (1,), "cpu"),
            [
                "input 1 (arg5_1): dimension 0 is 7; the package accepts 6 here, the size of "
                "dimension 0 of input 0 (arg4_1)"
            ],
        ),
        (
            X,
            InputFacts("int64", (6, 1), (1, 1), "cpu"),
            ["input 1 (arg5_1): has 2 dimensions; the package accepts 1 dimension"],
        ),
    ],
    ids=["range", "dtype", "stride", "device", "two inputs disagree", "dimensions"],
)
def test_each_broken_guard_is_a_sentence(
    guards: PackageGuards, x: InputFacts, index: InputFacts, sentences: list[str]
) -> None:
    assert [item.text for item in broken(guards, [x, index, SCALE])] == sentences


def test_a_wrong_number_of_inputs(guards: PackageGuards, snapshot: SnapshotAssertion) -> None:
    (found,) = broken(guards, [X, INDEX])
    assert found.text == snapshot


def test_the_stride_of_a_single_row_makes_no_difference() -> None:
    guards = PackageGuards(
        (InputGuard(0, "x", "float32", {0: SizeRange(1, 8)}, {0: 16, 1: 1}, "cpu"),)
    )
    (found,) = broken(guards, [InputFacts("float32", (1, 16), (99, 1), "cpu")])
    assert found.is_harmless
    (found,) = broken(guards, [InputFacts("float32", (2, 16), (99, 1), "cpu")])
    assert not found.is_harmless


def test_an_input_that_is_not_aligned_is_copied_which_is_slow_but_right(
    snapshot: SnapshotAssertion,
) -> None:
    guards = PackageGuards((InputGuard(0, "x", aligned_to=16),))
    (found,) = broken(guards, [InputFacts("float32", (4,), (1,), "cuda:0", alignment=4)])
    assert found.is_harmless
    assert found.text == snapshot


def test_a_size_that_follows_from_another_one() -> None:
    sizes = (SizeRange(2, 64),)
    guards = PackageGuards(
        (
            InputGuard(0, "x", sizes={0: sizes[0]}),
            InputGuard(
                1, "y", size_expressions=("2L*s0",), stride_expressions=("1L",), has_rank=True
            ),
        ),
        (Symbol("s0", "x_size[0]"),),
    )
    x = InputFacts("float32", (5,), (1,), "cpu")
    assert broken(guards, [x, InputFacts("float32", (10,), (1,), "cpu")]) == ()
    (found,) = broken(guards, [x, InputFacts("float32", (11,), (1,), "cpu")])
    assert found.expected == "10"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("s0 + 1L", 7),
        ("c10::div_floor_integer(static_cast<int64_t>(s0), static_cast<int64_t>(4L))", 1),
        ("std::max(s0, 10L)", 10),
        ("s0 / 4L", None),  # Not the division of Python.
        ("__import__('os').system('true')", None),
        ("unknown", None),
        ("9" * 5000, None),
    ],
)
def test_expressions_are_computed_or_left_alone(expression: str, value: int | None) -> None:
    assert value_of(expression, {"s0": 6}) == value


# Printed by torch 2.13 with AOTI_RUNTIME_CHECK_INPUTS=1.
@pytest.mark.parametrize(
    ("printed", "sentence"),
    [
        (
            "Error: input_handles[0]: dim value is too large at 0, expected to be <= 64, "
            "but got: 65\n",
            "input 0 (arg4_1): dimension 0 is 65; the package accepts at most 64",
        ),
        (
            "Error: input_handles[0]: unmatched dtype, expected: 6(at::kFloat), but got: 7\n",
            "input 0 (arg4_1): has dtype float64; the package accepts float32",
        ),
        (
            "Error: input_handles[1]: unmatched stride value at 0, expected: 1, but got: 2\n",
            "input 1 (arg5_1): stride 0 is 2; the package accepts 1",
        ),
        (
            "Error: input_handles[0]: unmatched device type, expected: 11(cuda), but got: 0\n",
            "input 0 (arg4_1): is on cpu; the package accepts cuda",
        ),
        (
            "expected size 7==6, stride 1==1 at dim=0\nError in op: torch.ops.shop.twice.default",
            "what torch.ops.shop.twice.default returned: dimension 0 is 7; its fake (meta) "
            "function promised 6",
        ),
        (
            "expected ndim 1 but got 2\nError in op: input",
            "an input: has 2 dimensions; the package accepts 1",
        ),
    ],
)
def test_what_torch_prints_is_translated(
    guards: PackageGuards, printed: str, sentence: str
) -> None:
    assert [item.text for item in translate(printed, guards.inputs)] == [sentence]
    assert translate("CUDA error: an illegal memory access") == ()
