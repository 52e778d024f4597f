"""The classes of events: what is written follows from them, and so does what is read."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inductoscope.recording import events
from inductoscope.recording.decoding import parse_line
from inductoscope.recording.events import (
    KINDS,
    Check,
    Entry,
    Event,
    FusionPair,
    NativeEnd,
    StageEnd,
    StageStart,
    UnknownEvent,
    read_entry,
    written_fields,
)

by_class = pytest.mark.parametrize("event", KINDS.values(), ids=KINDS)

# One value of each type, none of them a default.
_FILLED: dict[str, Any] = {
    "str": "text",
    "int": 3,
    "int | None": 0,
    "float": 1.5,
    "float | None": 0.0,
    "bool": True,
    "bool | None": False,
    "Any": {"class": "Pointwise"},
    "tuple[str, ...]": ("a", "b"),
    "tuple[tuple[str, str, str], ...]": (("op0", "load", "x = y"),),
    "tuple[tuple[str, str, int], ...]": (("op0", "load", 12),),
    "tuple[tuple[str, float], ...]": (("ttir", 0.5),),
    "tuple[Mapping[str, Any], ...]": ({"name": "x"},),
    "Mapping[str, Any]": {"gate": [1]},
    "Mapping[str, str]": {"ptx": "abc"},
    "Mapping[str, int]": {"aten.relu": 2},
    "Mapping[str, float]": {"triton_mm_0": 0.25},
}


def read_event(kind: str, found: dict[str, Any]) -> Event:
    return read_entry("1-1", {**found, "kind": kind}).event


def filled(event: type[Event]) -> Event:
    return event(**{item.name: _FILLED[str(item.type)] for item in fields(event)})


def through_disk(event: Event) -> Event:
    return read_event(event.kind, json.loads(json.dumps(written_fields(event))))


def test_every_class_is_in_a_module_of_events_and_has_a_kind_of_its_own() -> None:
    defined = [
        value
        for value in vars(events).values()
        if isinstance(value, type)
        and issubclass(value, Event)
        and value not in (Event, UnknownEvent)
    ]
    assert len(defined) == len({event.kind for event in defined}) == len(KINDS)


@by_class
def test_every_class_says_when_it_is_written(event: type[Event]) -> None:
    first = (event.__doc__ or "").strip().splitlines()[0]
    assert first
    assert not first.startswith(event.__name__ + "("), "a docstring that dataclass made up"


@by_class
def test_leaving_a_default_out_loses_nothing(event: type[Event]) -> None:
    for item in fields(event):
        absent = getattr(read_event(event.kind, {}), item.name)
        factory = item.default_factory
        default = factory() if factory is not MISSING else item.default
        assert default is MISSING or (type(default), default) == (type(absent), absent)


@by_class
def test_what_is_written_is_read_back(event: type[Event]) -> None:
    """At once, or field by field where one of them is damaged."""
    made = filled(event)
    line = {"n": 1, "t": 2.0, "kind": event.kind, **written_fields(made)}
    entry = parse_line("1-1", json.dumps(line, separators=(",", ":")).encode())
    assert entry == Entry("1-1", 1, 2.0, made)
    assert through_disk(made) == made


def test_empty_fields_are_left_out() -> None:
    start = StageStart(stage="aot", compile="0/0")
    assert written_fields(start) == {"stage": "aot", "compile": "0/0"}
    end = StageEnd(stage="aot", seconds=0.0, detail="x", thread=7)
    assert written_fields(end) == {"stage": "aot", "detail": "x", "seconds": 0.0, "thread": 7}
    pair = FusionPair(round=1, first="a", second="b", possible=False)
    assert written_fields(pair) == {"round": 1, "first": "a", "second": "b", "possible": False}


def test_nothing_and_zero_are_told_apart() -> None:
    assert written_fields(NativeEnd(tool="c++", exit_code=0)) == {"tool": "c++", "exit_code": 0}
    assert through_disk(NativeEnd(tool="c++")) == NativeEnd(tool="c++", exit_code=None)
    check = Check(compile="0/0", call=1, verdict="right", text="", is_exact=False)
    assert through_disk(check) == check


def test_a_value_that_answers_equality_with_a_tensor_is_written() -> None:
    class Odd:
        def __eq__(self, other: object) -> Any:
            raise RuntimeError("ambiguous")

        __hash__ = None  # type: ignore[assignment]

    odd: Any = Odd()
    assert written_fields(NativeEnd(registers=odd)) == {"registers": odd}


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.data())
def test_no_value_of_any_field_raises(data: st.DataObject) -> None:
    event = data.draw(st.sampled_from(list(KINDS.values())))
    found = {item.name: data.draw(_json) for item in fields(event)}
    read = read_event(event.kind, found)
    assert type(read) is event
    # What was read is sound: written and read again, it is the same.
    assert through_disk(read) == read


def test_unknown_kinds_keep_what_they_say() -> None:
    entry = parse_line("1-1", b'{"n": 3, "t": 2.5, "kind": "hologram", "depth": 3}')
    assert entry is not None
    assert (entry.stream, entry.number, entry.time, entry.kind) == ("1-1", 3, 2.5, "hologram")
    assert entry.event == UnknownEvent(kind="hologram", fields={"depth": 3})
