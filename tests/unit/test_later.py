"""Parts of a recording that are decoded when someone looks at them: nobody notices."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from inductoscope.analysis.rules.endings import _last_steps
from inductoscope.model import fold as later
from inductoscope.model.entities import InductorGraph
from inductoscope.model.fold import (
    LISTS,
    DecodedLater,
    fold,
    load,
    may_mention,
)
from inductoscope.model.schedule import Buffer, ScheduledNode, read_schedule
from inductoscope.recording import decoding, values
from inductoscope.recording.decoding import Entry, UndecodedEvents
from inductoscope.recording.events import Event
from inductoscope.recording.reader import RecordingReader, open_recording
from support.examples import NAMES, stored, write_recording


class ReadingAll(RecordingReader):
    """Decodes every line at once."""

    def entries(
        self, kinds: Iterable[str] | None = None, undecoded: Collection[str] = ()
    ) -> Iterator[Entry[Event]]:
        return super().entries(kinds)


@pytest.mark.parametrize("name", NAMES)
def test_the_model_is_the_same(name: str) -> None:
    reader = open_recording(stored(name))
    at_once = fold(ReadingAll(reader.path, reader.manifest))
    later = load(stored(name))
    assert later == at_once
    for one, other in zip(later.graphs, at_once.graphs, strict=True):
        assert lengths(one) == lengths(other)


def lengths(graph: InductorGraph) -> list[int]:
    return [len(getattr(graph, name)) for name in LISTS.values()]


def test_counting_decodes_nothing() -> None:
    (graph, *_) = load(stored("training_step")).graphs
    assert isinstance(graph.lowered, DecodedLater)
    count = len(graph.lowered)
    assert not graph.lowered.is_decoded
    assert len(list(graph.lowered)) == count == len(graph.lowered)
    assert graph.lowered[0] == next(iter(graph.lowered))
    assert graph.lowered[-1] == next(reversed(graph.lowered))


def test_who_looks_while_another_decodes_takes_nothing_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server answers each question in a thread of its own: here one comes to its end first."""
    (graph,) = load(write_lowerings(tmp_path / "r", *map(lowering, range(5)))).graphs
    names = [f"add_{number}" for number in range(5)]
    decode = later.decoded_events

    def interrupted(kind: str, graph_: str, lines: Iterable[bytes]) -> Iterator[Event | None]:
        monkeypatch.setattr(later, "decoded_events", decode)
        assert [node.node for node in graph.lowered] == names
        return decode(kind, graph_, lines)

    monkeypatch.setattr(later, "decoded_events", interrupted)
    assert [node.node for node in graph.lowered] == names
    assert [node.node for node in graph.lowered] == names
    assert len(graph.lowered) == 5


# --- damage ---------------------------------------------------------------------------------------


def write_lowerings(folder: Path, *lines: str) -> Path:
    streams = folder / "streams"
    streams.mkdir(parents=True)
    (folder / "recording.json").write_text(json.dumps({"schema": 1}))
    (streams / "7-1a.jsonl").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


def lowering(number: int, rest: str = '"seconds":0.5}') -> str:
    head = f'{{"n":{number},"t":1.0,"kind":"lowering","graph":"0/0 inference",'
    return f'{head}"node":"add_{number}","target":"aten.add","made":[],{rest}'


def test_a_line_that_is_cut_off_is_reported_at_once(tmp_path: Path) -> None:
    folder = write_lowerings(tmp_path / "r", lowering(0), lowering(1)[:-30], lowering(2))
    recording = load(folder)
    assert recording.damage == (("7-1a.jsonl:2", "not a whole event"),)
    assert [node.node for node in recording.graphs[0].lowered] == ["add_0", "add_2"]


def test_a_line_that_is_damaged_inside_is_passed_over_when_it_is_decoded(tmp_path: Path) -> None:
    hurt = lowering(1, '"seconds":0.5,"ir":{"class":}}')
    recording = load(write_lowerings(tmp_path / "r", lowering(0), hurt, lowering(2)))
    assert [node.node for node in recording.graphs[0].lowered] == ["add_0", "add_2"]


@pytest.mark.parametrize("second", ['"kind":"fusion-pair"', '"graph":"1/0 inference"'])
def test_a_line_that_says_two_things_of_itself_is_passed_over(tmp_path: Path, second: str) -> None:
    """Its place is known by what it says first, and a decoder takes what it says last."""
    recording = load(write_lowerings(tmp_path / "r", lowering(0), lowering(1, second + "}")))
    assert [node.node for node in recording.graphs[0].lowered] == ["add_0"]


def test_a_graph_of_which_no_line_is_whole(tmp_path: Path) -> None:
    """What looks for the last node of an unfinished graph finds none."""
    hurt = lowering(0, '"seconds":}')
    recording = load(write_lowerings(tmp_path / "r", hurt))
    assert len(recording.graphs[0].lowered) == 1
    assert list(_last_steps(recording)) == []
    assert len(recording.graphs[0].lowered) == 0


def test_lines_are_decoded_a_block_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if a block holds one that is not whole."""
    monkeypatch.setattr(decoding, "_BLOCK", 1000)
    lines = [lowering(n, '"seconds":}' if n == 7 else '"seconds":0.5}') for n in range(40)]
    sizes = []

    def parse_lines(some: Sequence[bytes]) -> list[Any] | None:
        sizes.append(sum(map(len, some)))
        return parse_block(some)

    parse_block = values.parse_lines
    monkeypatch.setattr(values, "parse_lines", parse_lines)
    found = list(
        decoding.decoded_events("lowering", "0/0 inference", [line.encode() for line in lines])
    )
    assert [n for n, event in enumerate(found) if event is None] == [7]
    assert len(sizes) > 3
    assert max(sizes) < 1000 + len(lines[-1])


def test_events_that_follow_one_another_are_one_entry(tmp_path: Path) -> None:
    """Of each graph, in the order in which they were written; with the time of the last."""
    other = lowering(2).replace("0/0", "1/0").replace('"t":1.0', '"t":2.0')
    lines = [lowering(0), lowering(1), other, lowering(3), '{"n":4,"t":3.0,"kind":"x"}']
    reader = open_recording(write_lowerings(tmp_path / "r", *lines))
    entries = list(reader.entries(undecoded=LISTS))
    assert [(entry.number, entry.time) for entry in entries] == [
        (1, 1.0),
        (2, 2.0),
        (3, 1.0),
        (4, 3.0),
    ]
    assert [entry.event for entry in entries[:3]] == [
        UndecodedEvents("0/0 inference", {"lowering": [lines[0].encode(), lines[1].encode()]}),
        UndecodedEvents("1/0 inference", {"lowering": [lines[2].encode()]}),
        UndecodedEvents("0/0 inference", {"lowering": [lines[3].encode()]}),
    ]


@pytest.mark.parametrize(
    "line",
    [
        lowering(1).replace('"kind":"lowering"', '"kind": "lowering"'),
        lowering(1).replace("0/0 inference", "0/0 inf\\u0065rence"),
    ],
)
def test_lines_that_another_tool_has_written_are_in_their_places(tmp_path: Path, line: str) -> None:
    recording = load(write_lowerings(tmp_path / "r", lowering(0), line, lowering(2)))
    (graph,) = recording.graphs
    assert [node.node for node in graph.lowered] == ["add_0", "add_1", "add_2"]
    assert may_mention(graph.lowered, ["aten.mul"])  # Decoded already, so not searched.


def test_lines_are_searched_without_decoding_them(tmp_path: Path) -> None:
    (graph,) = load(write_lowerings(tmp_path / "r", lowering(0), lowering(1))).graphs
    assert may_mention(graph.lowered, ["aten.mul", "aten.add"])
    assert not may_mention(graph.lowered, ["aten.mul"])


# --- scheduler nodes ------------------------------------------------------------------------------


def test_a_node_of_a_schedule_has_all_its_fields_and_equals_its_copy() -> None:
    recording = load(stored("training_step"))
    (node, *_) = read_schedule(recording, recording.graphs[0].scheduled_after)
    for made in (node, *node.buffers):
        given = {field.name: getattr(made, field.name) for field in fields(made)}
        assert type(made)(**given) == made == replace(made)


def test_a_node_about_which_nothing_is_recorded_is_empty(tmp_path: Path) -> None:
    """Also one whose fields have other types than any recorder writes."""
    digest = "0" * 32
    strange = {"name": 7, "reads": "text", "buffers": [3], "nodes": [None, {}], "bytes": []}
    recording = load(write_recording(tmp_path / "r", payloads={digest: [{}, strange, "text"]}))
    empty, other = read_schedule(recording, digest)
    texts = dict.fromkeys(("name", "kind", "ir", "loops", "device", "group", "kernel", "body"), "")
    lists = ("reads", "writes", "unmet", "origins", "sizes", "buffers", "parts")
    assert empty == ScheduledNode(**texts, **dict.fromkeys(lists, ()))  # type: ignore[arg-type]
    assert (other.name, other.reads, other.bytes) == ("7", (), {})
    assert other.buffers == (Buffer("", (), "", "", (), (), (), ()),)
    assert other.leaves == (empty,)
