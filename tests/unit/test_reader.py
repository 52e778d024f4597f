"""Reading what is no recording, or no longer one: what the user gives, and what the tool says."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.model.fold import load
from inductoscope.recording import reader as stream_reader
from inductoscope.recording import values
from inductoscope.recording.layout import stream_paths
from inductoscope.recording.reader import open_recording
from support.examples import inductoscope, stored, write_recording

PROCESS = {"kind": "process", "pid": 7, "argv": ["python", "train.py"]}
TICK = {"kind": "compile-start", "compile": "0/0", "function": "forward"}


# --- what is no recording -------------------------------------------------------------------------


def test_a_folder_that_does_not_exist(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("show", tmp_path / "nowhere")
    assert answer.exit_code == 2
    assert answer.words == snapshot


def test_a_file(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "trace.log").write_text("text")
    answer = inductoscope("show", tmp_path / "trace.log")
    assert answer.exit_code == 2
    assert answer.words == snapshot


@pytest.mark.parametrize("content", ["nothing", "other files"])
def test_a_folder_that_is_no_recording(
    tmp_path: Path, content: str, snapshot: SnapshotAssertion
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if content == "other files":
        (folder / "model.pt2").write_text("weights")
    answer = inductoscope("show", folder)
    assert answer.exit_code == 2
    assert answer.words == snapshot


def test_a_name_that_no_file_can_have(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    answer = inductoscope("show", tmp_path / ("x" * 5000))
    assert answer.exit_code == 2
    assert answer.words == snapshot


def test_no_recording_has_been_made_yet(snapshot: SnapshotAssertion) -> None:
    folder = os.environ["INDUCTOSCOPE_RECORDINGS"]
    answer = inductoscope("show")
    assert answer.exit_code == 2
    assert answer.stderr.replace(folder, "FOLDER") == snapshot


def test_a_recording_of_a_newer_version_is_refused_by_name(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    newer = {"schema": 2, "tool": "inductoscope 9.0"}
    answer = inductoscope("show", write_recording(tmp_path / "r", TICK, manifest=newer))
    assert answer.exit_code == 2
    assert answer.words == snapshot


# --- a manifest that is missing or damaged --------------------------------------------------------


@pytest.mark.parametrize(
    ("manifest", "what"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "cut short or not JSON"),
        (b'{"schema": 1, "comm', "cut short or not JSON"),
        (b"[1, 2]", "not an object"),
        (b"\xff\xfe\x00", "cut short or not JSON"),
        (b"[" * 100_000, "cut short or not JSON"),
    ],
)
def test_without_its_manifest_a_recording_is_still_read(
    tmp_path: Path, manifest: bytes | None, what: str
) -> None:
    folder = write_recording(tmp_path / "r", PROCESS, TICK)
    (folder / "recording.json").unlink()
    if manifest is not None:
        (folder / "recording.json").write_bytes(manifest)

    recording = load(folder)

    assert recording.damage == (("recording.json", what),)
    assert [compile_.function for compile_ in recording.compiles] == ["forward"]


@pytest.mark.parametrize("schema", [1, 0, "2", None, 1.5, True])
def test_only_a_newer_schema_is_refused(tmp_path: Path, schema: object) -> None:
    folder = write_recording(tmp_path / "r", TICK, manifest={"schema": schema})
    assert load(folder).compiles


# --- streams that are not what they should be -----------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "not JSON",
        '{"kind": "compile-start", "com',
        "[]",
        '"kind"',
        "{}",
        '{"kind": 3}',
        '{"kind": "graph", "x": ' + "[" * 500 + "]" * 500 + "}",
        '{"kind": "graph", "x": ' + "[" * 100_000,
        '{"kind": "graph"}\x00',
    ],
)
def test_a_line_that_is_no_event_is_passed_and_named(tmp_path: Path, line: str) -> None:
    folder = write_recording(tmp_path / "r", PROCESS)
    with (folder / "streams" / "1-1.jsonl").open("a") as stream:
        stream.write(f"{line}\n\n{json.dumps(TICK)}\n")

    recording = load(folder)

    assert recording.damage == (("1-1.jsonl:2", "not a whole event"),)
    assert [compile_.id for compile_ in recording.compiles] == ["0/0"]


def test_events_that_only_a_newer_version_knows_are_counted_and_shown(tmp_path: Path) -> None:
    unknown = [{"kind": "hologram", "depth": 3}, {"kind": "hologram"}, {"kind": "scent"}]
    folder = write_recording(tmp_path / "r", PROCESS, *unknown, TICK)

    assert load(folder).unknown_events == {"hologram": 2, "scent": 1}
    shown = inductoscope("show", folder)
    assert "This version does not know 3 events" in shown.words
    assert "kinds: hologram 2, scent 1" in shown.words
    data = inductoscope("show", folder, "--json", "-").data
    assert data["unknown_events"] == {"hologram": 2, "scent": 1}


def test_known_kinds_may_have_fields_that_only_a_newer_version_knows(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "r", {**PROCESS, "mood": "good"}, {**TICK, "mood": "bad"})
    assert load(folder).damage == ()
    assert load(folder).compiles[0].function == "forward"


@pytest.mark.parametrize(
    "place", ["streams/1-1.jsonl", "recording.json", "payloads/aa/" + "a" * 30]
)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, place: str, make: object
) -> None:
    graph = {"kind": "graph", "stage": "dynamo", "payload": "a" * 32}
    folder = write_recording(tmp_path / "r", TICK, graph, payloads={"a" * 32: "{}"})
    (folder / place).unlink()
    assert callable(make)
    make(folder / place)
    assert inductoscope("show", folder, "--stage", "dynamo").exit_code == 0


def test_streams_are_read_oldest_process_first(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "r")
    for name in ("999-1a", "5-2b", "70-ff"):
        (folder / "streams" / f"{name}.jsonl").write_text('{"kind": "process"}\n')
    names = [stream.stem for stream in stream_paths(folder)]
    assert names == ["1-1", "999-1a", "5-2b", "70-ff"]


# --- payloads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "digest", ["../../secret", "/etc/passwd", "a" * 31, "A" * 32, "b" * 32 + "\n", ""]
)
def test_what_is_no_digest_is_never_used_as_a_path(tmp_path: Path, digest: str) -> None:
    (tmp_path / "secret").write_text("not yours")
    folder = write_recording(tmp_path / "r", payloads={"b" * 32: "x"})
    assert (folder / "payloads" / ".." / ".." / "secret").exists()
    reader = open_recording(folder)
    assert reader.payload(digest) is None
    assert reader.json_payload(digest) is None


def test_a_graph_that_names_a_path_as_its_payload_is_missing(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    node = {"name": "not_yours", "op": "placeholder"}
    (tmp_path / "secret").write_text(json.dumps({"nodes": [node]}))
    graph = {"kind": "graph", "stage": "dynamo", "payload": "../../secret"}
    folder = write_recording(tmp_path / "r", TICK, graph, payloads={"b" * 32: "x"})
    shown = inductoscope("show", folder, "--stage", "dynamo")
    assert shown.stdout == snapshot
    assert "not_yours" not in shown.stdout


def test_a_damaged_payload_is_missing_and_nothing_else_is(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    shutil.copytree(stored("relu_add_sum"), folder)
    graph = next(g for g in load(folder).compiles[0].graphs if g.stage == "dynamo")
    path = folder / "payloads" / graph.payload[:2] / graph.payload[2:]
    path.write_bytes(path.read_bytes()[:100])

    assert "graph is missing" in inductoscope("show", folder, "--stage", "dynamo").stdout
    assert "ops.relu" in inductoscope("show", folder, "--stage", "ir").stdout


# --- files elsewhere on this machine, and files without end ---------------------------------------

GRAPH = {"kind": "graph", "stage": "dynamo", "payload": "a" * 32}
SECRET = {"nodes": [{"name": "not_yours", "op": "placeholder"}]}


def linked(folder: Path, place: str) -> Path:
    """A recording in which `place` has been moved out and is a link to where it is now."""
    write_recording(folder, TICK, GRAPH, payloads={"a" * 32: SECRET})
    elsewhere = folder.parent / "elsewhere"
    (folder / place).rename(elsewhere)
    (folder / place).symlink_to(elsewhere)
    return folder


@pytest.mark.parametrize("place", ["payloads/aa", "payloads/aa/" + "a" * 30])
def test_a_payload_that_is_a_link_is_missing(
    tmp_path: Path, place: str, snapshot: SnapshotAssertion
) -> None:
    reader = open_recording(linked(tmp_path / "r", place))
    assert reader.payload("a" * 32) is None
    assert reader.json_payload("a" * 32) is None
    what = "cannot be read: a link, which is not followed"
    assert {(item.where, item.what) for item in reader.damage} == {
        (f"payloads/aa/{'a' * 30}", what)
    }
    shown = inductoscope("show", tmp_path / "r", "--stage", "dynamo")
    assert shown.stdout == snapshot


@pytest.mark.parametrize("place", ["payloads", "streams"])
def test_a_linked_folder_is_refused(tmp_path: Path, place: str) -> None:
    answer = inductoscope("show", linked(tmp_path / "r", place))
    assert answer.exit_code == 2
    assert f"{place} is a link, which is not followed." in answer.words


@pytest.mark.parametrize("place", ["recording.json", "streams/1-1.jsonl"])
def test_a_linked_manifest_or_stream_is_not_read(tmp_path: Path, place: str) -> None:
    recording = load(linked(tmp_path / "r", place))
    name = place.rpartition("/")[2]
    assert recording.damage == ((name, "cannot be read: a link, which is not followed"),)


def test_the_recording_itself_may_be_reached_through_a_link(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "r", TICK, GRAPH, payloads={"a" * 32: "text"})
    (tmp_path / "latest").symlink_to(folder)
    reader = open_recording(tmp_path / "latest")
    assert (reader.payload("a" * 32), reader.damage) == ("text", [])
    assert [entry.kind for entry in reader.entries()] == ["compile-start", "graph"]


def test_a_payload_that_is_too_large_is_damage(tmp_path: Path) -> None:
    folder = write_recording(tmp_path / "r", TICK, GRAPH, payloads={"a" * 32: "text"})
    # Holes take no room on the disk.
    os.truncate(folder / "payloads" / "aa" / ("a" * 30), (256 << 20) + 1)
    reader = open_recording(folder)
    assert reader.payload("a" * 32) is None
    assert [item.what for item in reader.damage] == ["cannot be read: larger than 256 MiB"]


@pytest.mark.parametrize("length", [1000, 1001, 1002, 1003, 2004, 5000])
def test_a_line_that_is_too_long_is_damage_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    monkeypatch.setattr(stream_reader, "_LONGEST_LINE", 1000)
    folder = write_recording(tmp_path / "r", PROCESS)
    with (folder / "streams" / "1-1.jsonl").open("a") as stream:
        stream.write("x" * (length - 1) + "\n" + json.dumps(TICK) + "\n")
    recording = load(folder)
    what = "not a whole event" if length <= 1000 else "longer than 0 MiB"
    assert recording.damage == (("1-1.jsonl:2", what),)
    assert [compile_.id for compile_ in recording.compiles] == ["0/0"]


# --- single values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NaN", "NaN"),
        ("[Infinity, -Infinity]", ["Infinity", "-Infinity"]),
        ("1e999", "1e999"),
        ("-1E+999", "-1E+999"),
        ('{"of":[0.5,1.0e0400], "or": 2e+0309}', {"of": [0.5, "1.0e0400"], "or": "2e+0309"}),
        ("1" * 20 + "e300", "1" * 20 + "e300"),
        ('["1e999", 1e99, 3e-999]', ["1e999", 1e99, 0.0]),
        ("9" * 30, "9" * 30),
        ("9" * 10_000, "9" * 10_000),
        ("1234567890123456789", 1234567890123456789),
        ("0.25", 0.25),
    ],
)
def test_numbers_that_cannot_be_computed_with_stay_text(text: str, value: object) -> None:
    assert values.parse(text) == value


@pytest.mark.parametrize("text", ["", "{", "[" * 101 + "]" * 101, "[" * 10**6, b"\xff", b'"\xc3"'])
def test_what_is_no_json_or_too_deep_is_refused(text: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        values.parse(text)


@pytest.mark.parametrize("value", [None, "7", [7], {"x": 7}, 10**20, float("inf"), float("nan")])
def test_what_is_no_measured_number_counts_as_zero(value: object) -> None:
    assert values.real(value) == 0.0


@pytest.mark.parametrize("value", [None, "ab", 3, {"a": 1}, True])
def test_what_is_no_list_has_no_texts(value: object) -> None:
    assert values.texts(value) == ()
    assert values.texts([value]) == (str(value),)


@pytest.mark.parametrize(
    "inner", ['"]"', '"[{"', '"\\\\"', '"\\"["', '"\\\\\\"]"', "{}", '{"]": []}']
)
def test_depth_is_told_from_brackets_inside_of_texts(inner: str) -> None:
    """101 levels are too many, whatever brackets and quotes the texts on them hold."""
    for levels in (98, 103):
        text = f"[{inner}, " * levels + "0" + "]" * levels
        if levels == 98:
            assert isinstance(values.parse(text), list)
            continue
        with pytest.raises(ValueError, match="nested too deeply"):
            values.parse(text)
