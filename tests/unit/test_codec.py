"""Values that the doctor's processes hand each other: to JSON and back, also when it is damaged."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from inductoscope.doctor.failure import HANG, Failure, Location, SuppressingAxis
from inductoscope.doctor.finding import GraphWorkaround, GraphWorkarounds, Suppressed
from inductoscope.doctor.instructions import Instructions
from inductoscope.recording.codec import decode, encode


@dataclass(frozen=True)
class Inner:
    name: str
    count: int = 0


@dataclass(frozen=True)
class Outer:
    text: str
    number: float = 1.5
    flag: bool = False
    maybe: float | None = None
    inner: Inner | None = None
    several: tuple[Inner, ...] = ()
    words: list[str] = field(default_factory=list)
    settings: Mapping[str, str] = field(default_factory=dict)
    anything: Any = None


WHOLE = Outer(
    "ü", 2.0, True, 0.5, Inner("a", 1), (Inner("b"), Inner("c", 2)), ["x"], {"k": "v"}, [1, {}]
)

HANDED_OVER = (
    Failure(HANG, "text", functions=("f (a.py:1)",), entered_at=0.0, largest=float("inf")),
    Location("lowering", suspects=("add", "mul"), graphs_are_right=True),
    Suppressed((SuppressingAxis("fusion", "scheduler", "fusion of kernels", "op0"),)),
    GraphWorkarounds((GraphWorkaround("text", "a = 1\nb = 'ü'", 1.02),)),
    Instructions(),
    Instructions(calls=0, failure=Failure("signal", "text"), variables={"A": "b"}, stall=5.0),
)


def through_json(value: Any) -> Any:
    return json.loads(json.dumps(encode(value)))


@pytest.mark.parametrize("value", [Outer("x"), WHOLE, *HANDED_OVER], ids=lambda v: type(v).__name__)
def test_a_value_survives_the_way_there_and_back(value: Any) -> None:
    assert decode(type(value), through_json(value)) == value


def test_a_process_of_another_version_may_know_more_or_less() -> None:
    assert decode(Outer, {"text": "x", "unheard_of": 1}) == Outer("x")


@pytest.mark.parametrize(
    "damage",
    [
        {"number": "2"},
        {"number": True},
        {"flag": 1},
        {"inner": {"count": 1}},
        {"inner": [1]},
        {"several": {"name": "b"}},
        {"words": "x"},
        {"settings": ["k"]},
    ],
    ids=str,
)
def test_a_value_of_the_wrong_type_counts_as_absent(damage: dict[str, Any]) -> None:
    assert decode(Outer, {"text": "x", **damage}) == Outer("x")


def test_a_damaged_element_is_left_out() -> None:
    damaged = [{"name": "b"}, {"count": 2}, None, {"name": "c", "count": "2"}]
    read = decode(Outer, {"text": "x", "several": damaged, "words": ["a", 1, "b"]})
    assert (read.several, read.words) == ((Inner("b"), Inner("c")), ["a", "b"])


@pytest.mark.parametrize("data", [{}, {"text": 1}, None, [], "text"], ids=str)
def test_what_lacks_a_required_field_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="Outer"):
        decode(Outer, data)


def test_what_json_has_no_word_for_becomes_text() -> None:
    assert encode({1: {2j}, "a": (None, 1.5)}) == {"1": "{2j}", "a": [None, 1.5]}
