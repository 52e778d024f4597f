"""Recipes for inputs: texts that make tensors of the same form, the simplest first."""

from __future__ import annotations

import base64
import math
import zlib
from typing import Any

import pytest
import torch
from torch.fx import Graph, GraphModule

from inductoscope.doctor.failure import ERROR, Failure
from inductoscope.inside.repro.failure_script import script_text
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.input_recipes import make_inputs, recipes_for, recipes_of
from support.graphs import numbers

# --- recipes --------------------------------------------------------------------------------------


VALUES = {
    "float32": numbers(3, 4),
    "many": numbers(70, 5),
    "bfloat16": numbers(3, 4).bfloat16(),
    "float16": numbers(100).half(),
    "float8": numbers(9).to(torch.float8_e4m3fn),
    "int64": torch.tensor([[1, -5], [2**40, 0]]),
    "uint8": torch.arange(100, dtype=torch.uint8) * 7,
    "bool": numbers(5, 5) > 0,
    "many bools": numbers(30, 5) > 0,
    "complex": torch.complex(numbers(4), numbers(4) + 1),
    "0-dim": torch.tensor(2.7182817),
    "0-dim whole number": torch.tensor(-3),
    "0-dim bool": torch.tensor(True),
    "empty": torch.empty(0),
    "empty in the middle": torch.empty(2, 0, 3),
    "infinite": torch.tensor([math.inf, -math.inf, 0.1]),
    "transposed": numbers(3, 4).t(),
    "every second": numbers(6, 4)[::2, ::2],
    "channels last": numbers(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "with a gradient": numbers(3).requires_grad_(),
    "transposed with a gradient": numbers(3, 4).t().detach().requires_grad_(),
    "a parameter": torch.nn.Parameter(numbers(3)),
}
by_name = pytest.mark.parametrize("name", VALUES)


@by_name
def test_every_recipe_makes_a_tensor_of_the_same_form(name: str) -> None:
    value = VALUES[name]
    recipes = list(recipes_for(value))
    assert len(recipes) > 1
    for recipe in recipes:
        (made,) = make_inputs([recipe], [None])
        assert (made.shape, made.dtype) == (value.shape, value.dtype), recipe
        assert made.stride() == value.stride(), recipe
        assert (made.requires_grad, made.is_leaf) == (value.requires_grad, True), recipe


@by_name
def test_the_last_recipe_makes_the_very_values(name: str) -> None:
    value = VALUES[name]
    *_, last = recipes_for(value)
    made = eval(last, {"torch": torch, "zlib": zlib, "base64": base64})
    assert torch.equal(made, value)


def test_the_simplest_recipes_come_first() -> None:
    recipes = list(recipes_for(numbers(2, 3)))
    assert recipes[:3] == ["torch.ones(2, 3)", "torch.randn(2, 3)", "torch.zeros(2, 3)"]
    assert recipes[-2].startswith("torch.tensor([[")
    assert "zlib.decompress" in recipes[-1]


def test_whole_numbers_stay_where_they_were_so_that_they_still_are_indices() -> None:
    recipes = list(recipes_for(torch.tensor([5, 0, 2])))
    assert "torch.randint(0, 6, (3,), dtype=torch.int64)" in recipes


def test_recipes_are_made_one_after_the_other_from_one_seed() -> None:
    before = torch.get_rng_state()
    first = make_inputs(["torch.randn(3)", "torch.randn(3)"], [None, None])
    torch.manual_seed(0)
    assert torch.equal(first[0], torch.randn(3))
    assert torch.equal(first[1], torch.randn(3))
    torch.set_rng_state(before)


@pytest.mark.parametrize("value", [3, 2.5, True, None, "text", (1, 2)])
def test_what_is_no_tensor_is_its_own_recipe(value: Any) -> None:
    assert [eval(recipe) for recipe in recipes_for(value)] == [value]


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.eye(3).to_sparse(), id="sparse"),
        pytest.param(numbers(100, 1000), id="too much"),
    ],
)
def test_the_last_recipe_is_empty_where_the_values_cannot_be_written_down(
    value: torch.Tensor,
) -> None:
    *_, last = recipes_for(value)
    assert last == ""


def test_nan_can_be_written_down() -> None:
    *_, last = recipes_for(torch.tensor([1.0, math.nan]))
    assert "nan" in last or "zlib" in last


def test_an_expanded_tensor_can_be_written_down() -> None:
    value = numbers(3).expand(2, 3)
    *_, last = recipes_for(value)
    assert torch.equal(make_inputs([last], [torch.empty(0)])[0], value)


@pytest.mark.filterwarnings("ignore:'float' object is not subscriptable:SyntaxWarning")
def test_an_expanded_tensor_may_be_a_multiple_of_random_numbers() -> None:
    assert any("* 10.0" in recipe for recipe in recipes_for(numbers(3).expand(2, 3)))


def test_unsigned_numbers_can_be_written_down() -> None:
    value = torch.tensor([1, 2], dtype=torch.uint16)
    *_, last = recipes_for(value)
    assert torch.equal(make_inputs([last], [None])[0], value)


# --- inputs that share memory ---------------------------------------------------------------------


def candidate_on(*inputs: Any) -> Candidate:
    graph = Graph()
    graph.output(tuple(graph.placeholder(f"x{number}") for number in range(len(inputs))))
    return Candidate(GraphModule({}, graph), inputs)


def with_very_values(candidate: Candidate) -> Candidate:
    """The candidate with the last of the recipes for each input."""
    recipes = tuple(texts[-1] for texts in recipes_of(candidate))
    return Candidate(candidate.module, candidate.inputs, recipes=recipes)


def inputs_of_script(candidate: Candidate) -> list[Any]:
    text = script_text(candidate, Failure(ERROR, "text"), "title")
    space: dict[str, Any] = {"__name__": "not run as a program"}
    exec(compile(text, "repro.py", "exec"), space)
    made: list[Any] = space["inputs"]()
    return made


def memories(values: Any) -> list[int]:
    """For each tensor the number of the first one that shares memory with it."""
    places = [value.untyped_storage().data_ptr() for value in values]
    return [places.index(place) for place in places]


WHOLE = numbers(6)
SHARING = {
    "a part": (WHOLE, WHOLE[1:3]),
    "a part before the whole": (WHOLE[1:3], WHOLE),
    "two parts": (WHOLE[:4], WHOLE, WHOLE[2:]),
    "transposed": (WHOLE.view(2, 3), WHOLE.view(2, 3).t()),
    "the same twice": (WHOLE, WHOLE),
    "two memories": (numbers(2), WHOLE, numbers(3), WHOLE[::2]),
}


@pytest.mark.parametrize("name", SHARING)
def test_inputs_that_share_memory_are_made_so(name: str) -> None:
    candidate = with_very_values(candidate_on(*SHARING[name]))
    for made in (make_inputs(candidate.recipes, candidate.inputs), inputs_of_script(candidate)):
        assert memories(made) == memories(candidate.inputs)
        for value, original in zip(made, candidate.inputs, strict=True):
            assert torch.equal(value, original)
            assert value.stride() == original.stride()
            assert value.storage_offset() == original.storage_offset()


def test_a_part_of_another_input_is_a_view_of_it_and_nothing_else() -> None:
    _, part = recipes_of(candidate_on(WHOLE, WHOLE[1:3]))
    assert part == ["shared_0.as_strided((2,), (1,), 1)"]


def test_in_a_script_what_is_shared_has_a_name() -> None:
    recipes = ("torch.ones(6)", "shared_0.as_strided((2,), (1,), 1)")
    candidate = Candidate(candidate_on(1, 2).module, (WHOLE, WHOLE[1:3]), recipes=recipes)
    text = script_text(candidate, Failure(ERROR, "text"), "title")
    begin = text.index("def inputs")
    assert text[begin : text.index("\n\n\n", begin)].splitlines() == [
        "def inputs():",
        "    shared_0 = torch.ones(6)",
        "    return [",
        "        shared_0,  # x0",
        "        shared_0.as_strided((2,), (1,), 1),  # x1",
        "    ]",
    ]


def test_a_script_draws_the_random_numbers_that_the_candidate_was_tried_on() -> None:
    recipes = ("torch.randn(2)", "torch.randn(6)", "shared_1.as_strided((2,), (1,), 1)")
    inputs = (numbers(2), WHOLE, WHOLE[1:3])
    candidate = Candidate(candidate_on(*inputs).module, inputs, recipes=recipes)
    made = make_inputs(recipes, inputs)
    for value, other in zip(inputs_of_script(candidate), made, strict=True):
        assert torch.equal(value, other)


def test_the_same_memory_read_as_another_type_keeps_its_type() -> None:
    candidate = with_very_values(candidate_on(WHOLE, WHOLE.view(torch.int32)))
    made = make_inputs(candidate.recipes, candidate.inputs)
    assert [value.dtype for value in made] == [torch.float32, torch.int32]


@pytest.mark.parametrize("asks", [(True, False), (False, True)], ids=["first", "second"])
def test_of_two_that_share_memory_one_may_ask_for_gradients(asks: tuple[bool, bool]) -> None:
    weight = numbers(6).requires_grad_()
    inputs = [weight if ask else weight.detach() for ask in asks]
    candidate = with_very_values(candidate_on(*inputs))
    made = make_inputs(candidate.recipes, candidate.inputs)
    assert [(value.requires_grad, value.is_leaf) for value in made] == [(ask, True) for ask in asks]
