"""Recordings that a crash, a bad disk or a stranger damaged: no view may fail on any of them.

Whatever stands in the files, a command shows what it can or says in one line why it cannot.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inductoscope.doctor.graph_script import graph_names
from inductoscope.errors import InductoscopeError
from inductoscope.model.fold import load
from inductoscope.model.stored_recordings import describe
from inductoscope.recording.events import KINDS, written_fields
from inductoscope.recording.reader import open_recording
from inductoscope.torch_facts.stages import SHOWN
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.document import dumps
from inductoscope.views.report.fusion import Selection as FusionSelection
from inductoscope.views.report.fusion import fusion_view, print_fusion
from inductoscope.views.report.recordings import print_recordings, recordings_view
from inductoscope.views.report.show import ShowSelection, choose_view
from inductoscope.views.report.terminal import Printer
from support.effort import examples, some_of
from support.examples import NAMES, stored, write_recording

SELECTIONS = (
    ShowSelection(),
    *(ShowSelection(stage=stage) for stage in SHOWN),
    ShowSelection(operation="relu"),
    ShowSelection(operation="softmax"),
    ShowSelection(source="script.py"),
    ShowSelection(kernel="fused"),
    ShowSelection(compile="0/0"),
)


def show_everything(folder: Path) -> None:
    """Every view as text and as JSON. Only errors that name their reason may come out of it."""
    page = Printer(io.StringIO())
    print_recordings(page, recordings_view([describe(folder)]))
    try:
        recording = load(folder)
    except InductoscopeError:
        return
    runnable = [
        ShowSelection(runnable=graph.name, write_to="-") for graph in graph_names(recording)[:3]
    ]
    for selection in (*SELECTIONS, *runnable):
        with contextlib.suppress(InductoscopeError):
            view, render = choose_view(recording, selection)
            render(page, view)
            json.dumps(view, allow_nan=False)
    print_fusion(page, fusion_view(recording, FusionSelection()))
    page_of(Contents(recording))


def page_of(contents: Contents) -> None:
    """Everything that the page holds, as a browser would read it."""
    for value in (contents.index, *(make() for make in contents.chunks.values())):
        json.loads(dumps(value, ascii_only=True))


# --- stored recordings, changed in one place ------------------------------------------------------

# A large recording takes ten times as long to show, so it comes up less often.
SMALL = [name for name in NAMES if len(list(stored(name).rglob("*"))) < 80]
_names = st.sampled_from(SMALL * 8 + NAMES)


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copies of the stored recordings, put back in order after every change."""
    root = tmp_path_factory.mktemp("copies")
    for name in NAMES:
        shutil.copytree(stored(name), root / name)
    return root


@contextlib.contextmanager
def changed(path: Path, content: bytes) -> Iterator[None]:
    original = path.read_bytes()
    path.write_bytes(content)
    try:
        yield
    finally:
        path.write_bytes(original)


def draw_file(data: st.DataObject, folder: Path, pattern: str) -> Path:
    return data.draw(st.sampled_from(sorted(p for p in folder.rglob(pattern) if p.is_file())))


def test_whole_recordings_show_everything(copies: Path) -> None:
    for name in NAMES:
        show_everything(copies / name)


@settings(max_examples=examples(60))
@given(name=_names, pattern=st.sampled_from(["*", "*.jsonl", "*.jsonl"]), data=st.data())
def test_a_file_cut_short_at_any_byte(
    copies: Path, name: str, pattern: str, data: st.DataObject
) -> None:
    path = draw_file(data, copies / name, pattern)
    content = path.read_bytes()
    offset = data.draw(st.integers(0, max(0, len(content) - 1)))
    with changed(path, content[:offset]):
        show_everything(copies / name)


@settings(max_examples=examples(60))
@given(name=_names, data=st.data())
def test_any_bytes_in_any_place(copies: Path, name: str, data: st.DataObject) -> None:
    path = draw_file(data, copies / name, data.draw(st.sampled_from(["*", "*.jsonl"])))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        offset = data.draw(st.integers(0, len(content)))
        content[offset : offset + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    with changed(path, bytes(content)):
        show_everything(copies / name)


# --- any value where another is expected ----------------------------------------------------------

_texts = st.text(max_size=6) | st.sampled_from(
    ["0/0", "0/0 inference", "relu", "dynamo", "../../secret", "\x1b[31m", "[red]", "\ud800", "\0"]
)
_numbers = st.integers() | st.floats() | st.sampled_from([10**30, 10**400, 2**31, -1])
_scalars = st.none() | st.booleans() | _numbers | _texts
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands inside a value: every key, and the first few of every list."""
    found = value.items() if isinstance(value, dict) else ()
    found = enumerate(value[:5]) if isinstance(value, list) else found
    for key, inner in found:
        yield (*path, key)
        yield from places(inner, (*path, key))


def replace_one(data: st.DataObject, value: Any) -> None:
    """Put any value into any one place."""
    *way, last = data.draw(st.sampled_from(list(places(value))))
    for key in way:
        value = value[key]
    value[last] = data.draw(_values)


def dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


@settings(max_examples=examples(60))
@given(name=_names, data=st.data())
def test_any_value_in_any_field_of_an_event(copies: Path, name: str, data: st.DataObject) -> None:
    path = draw_file(data, copies / name, "*.jsonl")
    lines = path.read_bytes().splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    event = json.loads(lines[number])
    replace_one(data, event)
    lines[number] = dumped(event)
    with changed(path, b"\n".join(lines)):
        show_everything(copies / name)


@settings(max_examples=examples(60))
@given(name=_names, data=st.data())
def test_any_value_in_any_place_of_a_payload_or_manifest(
    copies: Path, name: str, data: st.DataObject
) -> None:
    found = [p for p in (copies / name).rglob("*") if p.is_file() and _is_data(p)]
    path = data.draw(st.sampled_from(sorted(found)))
    content = json.loads(path.read_bytes())
    replace_one(data, content)
    with changed(path, dumped(content)):
        show_everything(copies / name)


def _is_data(path: Path) -> bool:
    with contextlib.suppress(ValueError):
        return next(places(json.loads(path.read_bytes())), None) is not None
    return False


# --- every field with a value of every wrong type -------------------------------------------------

# Every name of a field of any event, and those that every event has.
FIELDS = sorted({"n", "t"} | {item.name for event in KINDS.values() for item in fields(event)})
WRONG = (7, "text", [7, "text"], {"text": "7", "more": [7]})


def test_the_names_of_fields_are_those_of_the_classes() -> None:
    assert {"compile", "milliseconds", "passes", "bytes_saved", "argv"} <= set(FIELDS)


@pytest.fixture(scope="module")
def one_of_each() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The first event of each kind in any stored recording, and the payloads that they name."""
    events: dict[str, dict[str, Any]] = {}
    payloads: dict[str, Any] = {}
    for name in ["relu_add_sum", "training_step", *NAMES]:
        reader = open_recording(stored(name))
        for entry in reader.entries():
            if entry.kind in events:
                continue
            written = written_fields(entry.event)
            events[entry.kind] = {**written, "kind": entry.kind}
            for digest in re.findall(r"\b[0-9a-f]{32}\b", json.dumps(written)):
                payloads[digest] = reader.json_payload(digest) or reader.payload(digest) or ""
    return list(events.values()), payloads


def keys_of(value: Any) -> set[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set(value if isinstance(value, dict) else ()).union(*map(keys_of, inner))


def with_value(content: Any, key: str, value: Any) -> Any:
    """The content with every `key` in it set to `value`."""
    if isinstance(content, dict):
        return {k: value if k == key else with_value(v, key, value) for k, v in content.items()}
    if isinstance(content, list):
        return [with_value(item, key, value) for item in content]
    return content


def test_almost_every_kind_of_event_has_been_recorded(
    one_of_each: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    kinds = {event["kind"] for event in one_of_each[0]}
    assert kinds <= KINDS.keys()
    assert len(kinds) > 30


@pytest.mark.parametrize("wrong", some_of(WRONG), ids=repr)
def test_every_field_of_every_event_with_a_value_of_the_wrong_type(
    one_of_each: tuple[list[dict[str, Any]], dict[str, Any]], tmp_path: Path, wrong: object
) -> None:
    events, payloads = one_of_each
    for field in FIELDS:
        changed_events = [{**event, field: wrong} for event in events]
        show_everything(write_recording(tmp_path / field, *changed_events, payloads=payloads))


@pytest.mark.parametrize("wrong", some_of(WRONG), ids=repr)
def test_every_place_of_every_payload_with_a_value_of_the_wrong_type(
    one_of_each: tuple[list[dict[str, Any]], dict[str, Any]], tmp_path: Path, wrong: object
) -> None:
    events, payloads = one_of_each
    named = [key for key in sorted(keys_of(payloads)) if not re.search(r"\d|\W", key)]
    assert {"nodes", "from", "shape", "origins", "code"} <= set(named)
    for key in named:
        content = {digest: with_value(value, key, wrong) for digest, value in payloads.items()}
        show_everything(write_recording(tmp_path / key, *events, payloads=content))


# --- events that no recording has -----------------------------------------------------------------

_events = st.builds(
    lambda kind, fields: {**fields, "kind": kind},
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(st.sampled_from(FIELDS), _values, max_size=6),
)


@settings(max_examples=examples(100))
@given(events=st.lists(_events, max_size=12))
def test_any_events_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, events: list[dict[str, Any]]
) -> None:
    folder = tmp_path_factory.mktemp("any") / "recording"
    show_everything(write_recording(folder, *events))
