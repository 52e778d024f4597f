"""Writing the record while things go wrong: real processes, real signals, real full disks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from inductoscope.analysis.rules import diagnose
from inductoscope.model.fold import load
from inductoscope.recording.layout import payload_path
from inductoscope.recording.location import create_recording
from inductoscope.recording.reader import Event, RecordingReader, open_recording
from inductoscope.recording.writer import StreamWriter
from support.examples import inductoscope
from support.programs import with_small_disk

# Ahead of every program below: `writer` writes into the folder given as the first argument.
BEGINNING = """
import os, sys
from pathlib import Path
from inductoscope.recording.writer import StreamWriter

folder = Path(sys.argv[1])
writer = StreamWriter(folder, first_event=lambda: {"pid": os.getpid()})
"""


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


def read(folder: Path) -> tuple[RecordingReader, list[Event]]:
    reader = open_recording(folder)
    return reader, list(reader.events())


def kinds(events: list[Event], stream: str = "") -> str:
    return " ".join(event.kind for event in events if stream in ("", event.stream))


def ticks(events: list[Event]) -> list[int]:
    return [event.whole("number") for event in events if event.kind == "tick"]


def notes(folder: Path) -> str:
    return " ".join(finding.title for finding in diagnose(load(folder)))


# --- a process that is killed ---------------------------------------------------------------------


def test_a_kill_loses_at_most_the_event_being_written(folder: Path) -> None:
    program = """
for number in range(10**9):
    writer.emit("tick", number=number, text="x" * 500)
    if number == 300:
        print("ready", flush=True)
"""
    with start(program, folder) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL

    reader, events = read(folder)

    assert len(ticks(events)) > 300
    assert ticks(events) == list(range(len(ticks(events))))
    assert len(reader.damage) <= 1


def test_a_half_written_last_line_is_damage_and_the_rest_is_whole(folder: Path) -> None:
    writer = StreamWriter(folder, first_event=dict)
    writer.emit("tick", number=1)
    writer.emit("tick", number=2)
    (stream,) = (folder / "streams").glob("*.jsonl")
    stream.write_bytes(stream.read_bytes()[:-5])

    reader, events = read(folder)

    assert [event.fields.get("number") for event in events] == [None, 1]
    assert [damage.where for damage in reader.damage] == [f"{stream.name}:3"]
    assert "1 place(s) of the recording cannot be read" in notes(folder)


# --- several processes, several threads -----------------------------------------------------------


def test_a_forked_child_gets_a_stream_of_its_own(folder: Path) -> None:
    program = """
writer.emit("before")
if os.fork() == 0:
    writer.emit("child")
    writer.close()
    os._exit(0)
os.wait()
writer.emit("parent")
writer.close()
"""
    run(program, folder)

    reader, events = read(folder)

    parent, child = (stream.stem for stream in reader.streams())
    assert kinds(events, stream=parent) == "process before parent process-end"
    assert kinds(events, stream=child) == "process child process-end"
    for process in load(folder).processes:
        assert process.stream.startswith(f"{process.pid}-")


def test_a_forked_child_that_fails_first_leaves_the_parents_stream_alone(folder: Path) -> None:
    program = """
writer.emit("before")
(folder / "payloads").write_text("in the way")
if os.fork() == 0:
    writer.payload("a text that cannot be stored")
    os._exit(0)
os.wait()
writer.emit("after")
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
        writer.emit("tick", number=1000 * mine + number, text="x" * 300)

threads = [threading.Thread(target=work, args=(mine,)) for mine in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
writer.close()
"""
    run(program, folder)

    reader, events = read(folder)

    assert reader.damage == []
    assert len(reader.streams()) == 1
    assert sorted(ticks(events)) == [n + 1000 * mine for mine in range(8) for n in range(500)]
    assert sorted(event.number for event in events) == list(range(4002))


def test_threads_that_store_the_same_text_store_it_whole(folder: Path) -> None:
    program = """
import threading
writer.emit("before")
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
writer.emit("before")
os.closerange(3, 256)
descriptors = [os.open(sys.argv[2], os.O_RDWR | os.O_CREAT) for _ in range(8)]
for number in range(20):
    writer.emit("tick", number=number)
    writer.payload(f"text {number}")
os.write(descriptors[0], b"mine")
"""
    run(program, folder, own)

    reader, events = read(folder)

    assert own.read_bytes() == b"mine"
    assert kinds(events) == "process before" + " tick" * 20
    assert reader.damage == []


def test_without_a_free_descriptor_events_are_left_out_and_counted(folder: Path) -> None:
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

take_all(); writer.emit("lost before the stream began"); free_all()
writer.emit("kept")
take_all(); writer.emit("lost"); free_all()
writer.emit("kept")
writer.close()
"""
    run(program, folder)

    _, events = read(folder)

    assert kinds(events) == "process kept kept process-end"
    assert "could not write 2 event(s)" in notes(folder)


# --- disks that fill up ---------------------------------------------------------------------------


def test_a_payload_beyond_the_file_size_limit_ends_the_recording_only(folder: Path) -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
writer.emit("before")
writer.payload("x" * 200_000)
writer.emit("after")
print("the program went on")
"""
    assert run(program, folder) == "the program went on\n"

    _, events = read(folder)
    assert (events[-1].kind, events[-1].text("reason")) == ("stopped", "File too large")
    assert "stopped recording: File too large. The program went on." in notes(folder)


def test_a_stream_beyond_the_file_size_limit_still_says_why_it_ends(folder: Path) -> None:
    program = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
for number in range(1000):
    writer.emit("tick", number=number, text="x" * 100)
print("the program went on")
"""
    assert run(program, folder) == "the program went on\n"

    reader, events = read(folder)
    assert ticks(events) == list(range(len(ticks(events))))
    assert events[-1].kind == "stopped"
    assert len(reader.damage) <= 1


def test_a_full_disk_ends_the_recording_only(tmp_path: Path) -> None:
    disk, kept = tmp_path / "disk", tmp_path / "kept"
    before = with_small_disk(disk)
    program = """
import shutil
folder.mkdir()
for number in range(1000):
    writer.emit("tick", number=number, text="x" * 300)
print("the program went on")
(folder / "recording.json").write_text("{}")
shutil.copytree(folder, sys.argv[2])
"""
    printed = run(program, disk / "recording", kept, before=before)
    assert printed == "the program went on\n"

    reader, events = read(kept)
    assert len(ticks(events)) > 100
    assert ticks(events) == list(range(len(ticks(events))))
    assert (events[-1].kind, events[-1].text("reason")) == ("stopped", "No space left on device")
    assert len(reader.damage) <= 1
    shown = inductoscope("show", kept)
    assert "stopped recording: No space left on device. The program went on." in shown.words


# --- folders that go away or cannot be written ----------------------------------------------------

NOBODY = 65534


def test_a_folder_that_is_deleted_meanwhile_is_not_made_again(folder: Path) -> None:
    program = """
writer.emit("before")
print("ready", flush=True)
sys.stdin.readline()
writer.payload("a text")
writer.emit("after")
if os.fork() == 0:
    writer.payload("another")
    writer.emit("child")
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
writer.emit("tick")
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
    assert run('writer.emit("tick"); print(writer.stopped)', place) == "Not a directory\n"
    assert place.read_text() == "a file"


# --- payloads -------------------------------------------------------------------------------------


def test_a_text_is_stored_once_under_its_digest(folder: Path) -> None:
    writer = StreamWriter(folder, first_event=dict)
    digests = {writer.payload("def forward(x): ...") for _ in range(3)}
    (digest,) = digests
    assert open_recording(folder).payload(digest) == "def forward(x): ..."
    files = [path for path in (folder / "payloads").rglob("*") if path.is_file()]
    assert files == [folder / payload_path(digest)]


def test_any_value_can_be_written(folder: Path) -> None:
    writer = StreamWriter(folder, first_event=dict)
    writer.emit("odd", path=Path("x"), text="\ud800 \x1b \n", number=float("nan"), flags={1, 2})
    _, (_, event) = read(folder)
    assert event.text("path") == "x"
    assert event.text("text") == "\ud800 \x1b \n"
    assert event.real("number") == 0.0
    lines = next((folder / "streams").glob("*.jsonl")).read_text("ascii").splitlines()
    assert json.loads(lines[-1])["kind"] == "odd"
    assert os.linesep not in lines[-1]
