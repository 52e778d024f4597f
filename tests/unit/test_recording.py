"""Writing the record while things go wrong: real processes, real signals, real full disks."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from inductoscope.analysis.rules import diagnose
from inductoscope.model.fold import load
from inductoscope.recording.events import Entry, Event, ProcessStart, RecordingStopped, UnknownEvent
from inductoscope.recording.layout import payload_path, stream_paths
from inductoscope.recording.location import create_recording
from inductoscope.recording.reader import RecordingReader, open_recording
from inductoscope.recording.writer import StreamWriter
from support.examples import inductoscope
from support.programs import with_small_disk

# Ahead of every program below: `writer` writes into the folder given as the first argument.
BEGINNING = """
import os, sys
from pathlib import Path
from inductoscope.recording.events import Event
from inductoscope.recording.events import ProcessStart
from inductoscope.recording.writer import StreamWriter

class Said(Event):
    kind: str
    number: int | None = None
    text: str = ""

def say(kind, **fields):
    writer.emit(Said(kind=kind, **fields))

folder = Path(sys.argv[1])
writer = StreamWriter(folder, first_event=lambda: ProcessStart(pid=os.getpid()))
"""


class Said(Event):
    """An event of any kind, with any values in it."""

    kind: str  # type: ignore[misc]
    number: Any = None
    text: Any = ""
    path: Any = ""
    flags: Any = ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return create_recording(["program"], output=tmp_path / "recording")


def start(program: str, *words: str | Path, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", BEGINNING + program, *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def run(program: str, *words: str | Path, before: tuple[str, ...] = ()) -> str:
    """Run a program that must end well, and return what it printed."""
    child = start(program, *words, before=before)
    printed, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    return printed


def read(folder: Path) -> tuple[RecordingReader, list[Entry[Event]]]:
    reader = open_recording(folder)
    return reader, list(reader.entries())


def kinds(entries: list[Entry[Event]], stream: str = "") -> str:
    return " ".join(entry.kind for entry in entries if stream in ("", entry.stream))


def fields(entry: Entry[Event]) -> Mapping[str, Any]:
    """Fields of an event of a kind that only this test knows."""
    assert isinstance(entry.event, UnknownEvent)
    return entry.event.fields


def ticks(entries: list[Entry[Event]]) -> list[int]:
    return [fields(entry)["number"] for entry in entries if entry.kind == "tick"]


def notes(folder: Path) -> str:
    return " ".join(finding.title for finding in diagnose(load(folder)))


# --- a process that is killed ---------------------------------------------------------------------


def test_a_kill_loses_at_most_the_event_being_written(folder: Path) -> None:
    program = """
for number in range(10**9):
    say("tick", number=number, text="x" * 500)
    if number == 300:
        print("ready", flush=True)
"""
    with start(program, folder) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL

    reader, entries = read(folder)

    assert len(ticks(entries)) > 300
    assert ticks(entries) == list(range(len(ticks(entries))))
    assert len(reader.damage) <= 1


def test_a_half_written_last_line_is_damage_and_the_rest_is_whole(folder: Path) -> None:
    writer = StreamWriter(folder, first_event=ProcessStart)
    writer.emit(Said(kind="tick", number=1))
    writer.emit(Said(kind="tick", number=2))
    (stream,) = (folder / "streams").glob("*.jsonl")
    stream.write_bytes(stream.read_bytes()[:-5])

    reader, entries = read(folder)

    assert kinds(entries) == "process tick"
    assert ticks(entries) == [1]
    assert [damage.where for damage in reader.damage] == [f"{stream.name}:3"]
    assert "1 place in the recording cannot be read" in notes(folder)


# --- several processes, several threads -----------------------------------------------------------


def test_a_forked_child_gets_a_stream_of_its_own(folder: Path, snapshot: SnapshotAssertion) -> None:
    program = """
say("before")
if os.fork() == 0:
    say("child")
    writer.close()
    os._exit(0)
os.wait()
say("parent")
writer.close()
"""
    run(program, folder)

    _, entries = read(folder)

    parent, child = (stream.stem for stream in stream_paths(folder))
    assert kinds(entries, stream=parent) == snapshot
    assert kinds(entries, stream=child) == "process child process-end"
    for process in load(folder).processes:
        assert process.stream.startswith(f"{process.pid}-")


def test_a_forked_child_that_fails_first_leaves_the_parents_stream_alone(folder: Path) -> None:
    program = """
say("before")
(folder / "payloads").write_text("in the way")
if os.fork() == 0:
    writer.payload("a text that cannot be stored")
    os._exit(0)
os.wait()
say("after")
writer.close()
"""
    run(program, folder)

    parent, child = load(folder).processes

    assert (parent.stopped, parent.ended) == ("", True)
    assert child.stopped == "File exists"
    assert not list((folder / "streams").glob(f"{parent.pid}-*.reserve"))


def test_threads_that_begin_together_write_one_stream_of_whole_lines(folder: Path) -> None:
    program = """
import threading
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def work(mine):
    together.wait()
    for number in range(500):
        say("tick", number=1000 * mine + number, text="x" * 300)

threads = [threading.Thread(target=work, args=(mine,)) for mine in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
writer.close()
"""
    run(program, folder)

    reader, entries = read(folder)

    assert reader.damage == []
    assert len(stream_paths(folder)) == 1
    assert sorted(ticks(entries)) == [n + 1000 * mine for mine in range(8) for n in range(500)]
    assert sorted(entry.number for entry in entries) == list(range(4002))


def test_threads_that_store_the_same_text_store_it_whole(folder: Path) -> None:
    program = """
import threading
say("before")
sys.setswitchinterval(1e-6)
together = threading.Barrier(8)

def work():
    for number in range(200):
        together.wait()
        writer.payload(str(number) * 2_000)

threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(writer.stopped)
for number in range(200):
    print(writer.payload(str(number) * 2_000))
"""
    stopped, *digests = run(program, folder).split()

    reader = open_recording(folder)

    assert stopped == "None"
    assert [reader.payload(d) for d in digests] == [str(n) * 2_000 for n in range(200)]


# --- programs that do things with files -----------------------------------------------------------


def test_a_program_that_closes_every_descriptor_keeps_its_own_files(folder: Path) -> None:
    own = folder.parent / "own.txt"
    program = """
say("before")
os.closerange(3, 256)
descriptors = [os.open(sys.argv[2], os.O_RDWR | os.O_CREAT) for _ in range(8)]
for number in range(20):
    say("tick", number=number)
    writer.payload(f"text {number}")
os.write(descriptors[0], b"mine")
"""
    run(program, folder, own)

    reader, entries = read(folder)

    assert own.read_bytes() == b"mine"
    assert kinds(entries) == "process before" + " tick" * 20
    assert reader.damage == []


def test_without_a_free_descriptor_events_are_left_out_and_counted(
    folder: Path, snapshot: SnapshotAssertion
) -> None:
    program = """
import contextlib, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
held = []
def take_all():
    with contextlib.suppress(OSError):
        while True:
            held.append(os.open("/", os.O_RDONLY))
def free_all():
    while held:
        os.close(held.pop())

take_all(); say("lost before the stream began"); free_all()
say("kept")
take_all(); say("lost"); free_all()
say("kept")
writer.close()
"""
    run(program, folder)

    _, entries = read(folder)

    assert kinds(entries) == snapshot
    assert "could not write 2 events" in notes(folder)


# --- disks that fill up ---------------------------------------------------------------------------


def test_a_payload_beyond_the_file_size_limit_ends_the_recording_only(
    folder: Path, snapshot: SnapshotAssertion
) -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
say("before")
writer.payload("x" * 200_000)
say("after")
print("the program went on")
"""
    assert run(program, folder) == snapshot

    _, entries = read(folder)
    assert entries[-1].event == RecordingStopped(reason="File too large")
    assert "stopped recording: File too large. The program continued." in notes(folder)


def test_a_stream_beyond_the_file_size_limit_still_says_why_it_ends(
    folder: Path, snapshot: SnapshotAssertion
) -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for number in range(1000):
    say("tick", number=number, text="x" * 100)
print("the program went on")
"""
    assert run(program, folder) == snapshot

    reader, entries = read(folder)
    assert ticks(entries) == list(range(len(ticks(entries))))
    assert entries[-1].kind == "stopped"
    assert len(reader.damage) <= 1


def test_a_full_disk_ends_the_recording_only(tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    before = with_small_disk(disk)
    program = """
import shutil
folder.mkdir()
for number in range(1000):
    say("tick", number=number, text="x" * 300)
print("the program went on")
(folder / "recording.json").write_text("{}")
shutil.copytree(folder, sys.argv[2])
"""
    printed = run(program, disk / "recording", kept, before=before)
    assert printed == "the program went on\n"

    reader, entries = read(kept)
    assert len(ticks(entries)) > 100
    assert ticks(entries) == list(range(len(ticks(entries))))
    assert entries[-1].event == RecordingStopped(reason=os.strerror(errno.ENOSPC))
    assert len(reader.damage) <= 1
    shown = inductoscope("show", kept)
    assert "stopped recording: No space left on device. The program continued." in shown.words


# --- folders that go away or cannot be written ----------------------------------------------------

NOBODY = 65534


def test_a_folder_that_is_deleted_meanwhile_is_not_made_again(folder: Path) -> None:
    program = """
say("before")
print("ready", flush=True)
sys.stdin.readline()
writer.payload("a text")
say("after")
if os.fork() == 0:
    writer.payload("another")
    say("child")
    os._exit(0)
print("child", os.wait()[1])
writer.close()
"""
    with start(program, folder) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        shutil.rmtree(folder)
        rest, _ = child.communicate("go on\n")

    assert (child.returncode, rest) == (0, "child 0\n")
    assert not folder.exists()


def test_a_folder_that_may_not_be_written_stops_nobody(folder: Path) -> None:
    program = """
writer.payload("a text")
say("tick")
print(writer.stopped)
"""
    (folder / "streams").rmdir()
    folder.chmod(0o555)
    # Root may write anywhere, so the program gives that up; from inside, no path is needed.
    give_up = f"os.chdir(folder); os.getuid() or os.setuid({NOBODY}); folder = Path('.')\n"
    program = give_up + "writer.folder = folder\n" + program

    assert run(program, folder) == "Permission denied\n"
    assert sorted(path.name for path in folder.iterdir()) == ["recording.json"]


def test_a_file_in_the_place_of_the_folder_stops_nobody(tmp_path: Path) -> None:
    place = tmp_path / "recording"
    place.write_text("a file")
    assert run('say("tick"); print(writer.stopped)', place) == "Not a directory\n"
    assert place.read_text() == "a file"


# --- payloads -------------------------------------------------------------------------------------


def test_a_text_is_stored_once_under_its_digest(folder: Path) -> None:
    writer = StreamWriter(folder, first_event=ProcessStart)
    digests = {writer.payload("def forward(x): ...") for _ in range(3)}
    (digest,) = digests
    assert open_recording(folder).payload(digest) == "def forward(x): ..."
    files = [path for path in (folder / "payloads").rglob("*") if path.is_file()]
    assert files == [folder / payload_path(digest)]


def test_any_value_can_be_written(folder: Path) -> None:
    writer = StreamWriter(folder, first_event=ProcessStart)
    writer.emit(
        Said(kind="odd", path=Path("x"), text="\ud800 \x1b \n", number=float("nan"), flags={1, 2})
    )
    _, (_, entry) = read(folder)
    assert fields(entry)["path"] == "x"
    assert fields(entry)["text"] == "\ud800 \x1b \n"
    assert fields(entry)["number"] == "NaN"
    lines = next((folder / "streams").glob("*.jsonl")).read_text("ascii").splitlines()
    assert json.loads(lines[-1])["kind"] == "odd"
    assert os.linesep not in lines[-1]
