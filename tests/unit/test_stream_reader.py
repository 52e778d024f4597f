"""Reading a stream while it is being written, whatever is written there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from inductoscope.recording import reader as stream_reader
from inductoscope.recording.reader import Damage, StreamReader


def line(number: int) -> bytes:
    return b'{"n": %d, "t": 1.0, "kind": "choice-start", "choice": "c%d"}\n' % (number, number)


def add(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "12-1a.jsonl"


def new_numbers(reader: StreamReader) -> list[int]:
    return [entry.number for entry in reader.read_new()]


def test_only_what_is_new_is_read_and_half_a_line_waits(path: Path) -> None:
    reader = StreamReader(path)
    add(path, line(0) + line(1)[:20])
    assert new_numbers(reader) == [0]
    assert new_numbers(reader) == []
    add(path, line(1)[20:] + line(2))
    assert new_numbers(reader) == [1, 2]
    assert reader.damage == []
    assert (reader.name, reader.pid) == ("12-1a", 12)


def test_a_stream_that_is_over_is_read_to_its_last_byte(path: Path) -> None:
    add(path, line(0) + line(1).strip())
    assert [entry.number for entry in StreamReader(path).read()] == [0, 1]
    add(path, b"\n" + line(2)[:-9])
    reader = StreamReader(path)
    assert [entry.number for entry in reader.read()] == [0, 1]
    assert [damage.where for damage in reader.damage] == ["12-1a.jsonl:3"]


def test_every_cut_gives_the_same_as_reading_at_once(path: Path) -> None:
    data = line(0) + b"not JSON\n\n" + line(1) + line(2)
    for cut in range(len(data)):
        path.write_bytes(data[:cut])
        reader = StreamReader(path)
        seen = new_numbers(reader)
        add(path, data[cut:])
        assert [*seen, *new_numbers(reader)] == [0, 1, 2]
        assert [damage.where for damage in reader.damage] == ["12-1a.jsonl:2"]


def test_a_line_without_end_is_passed_over_in_pieces(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_reader, "_LONGEST_LINE", 1000)
    reader = StreamReader(path)
    add(path, line(0))
    for _ in range(5):
        add(path, b"x" * 700)
        assert new_numbers(reader) in ([0], [])
    add(path, b"\n" + line(1))
    assert new_numbers(reader) == [1]
    assert reader.damage == [Damage("12-1a.jsonl:2", "longer than 0 MiB")]


def test_a_link_and_a_pipe_are_not_read(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_bytes(line(0))
    path.symlink_to(target)
    reader = StreamReader(path)
    assert new_numbers(reader) == new_numbers(reader) == []
    what = "cannot be read: a link, which is not followed"
    assert reader.damage == [Damage("12-1a.jsonl", what)]
    path.unlink()
    os.mkfifo(path)
    assert new_numbers(StreamReader(path)) == []


@pytest.mark.parametrize("name", ["x-1.jsonl", "-1.jsonl", "²-1.jsonl", ".jsonl"])
def test_a_name_without_a_process_is_of_none(tmp_path: Path, name: str) -> None:
    assert StreamReader(tmp_path / name).pid == 0


def test_the_last_words_of_a_process_belong_to_its_stream(tmp_path: Path) -> None:
    assert StreamReader(tmp_path / "12-1a-stopped.jsonl").name == "12-1a"
