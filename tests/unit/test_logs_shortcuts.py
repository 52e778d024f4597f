"""What makes reading a trace fast changes no answer.

Payloads are left out, and phases that are over are dropped.
Each log is read with the shortcuts and the long way: every line searched, every record folded.
"""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable

import pytest

from inductoscope.hangs.choices.analysis import analyse_answers
from inductoscope.hangs.logs import lines, reading
from inductoscope.hangs.logs import lines as blocks
from inductoscope.hangs.logs.answers import judge
from inductoscope.hangs.logs.lines import without_passed_phases
from inductoscope.hangs.logs.log_files import Log
from inductoscope.torch_facts.torch_trace import Outside, Record
from inductoscope.views.report.logs import logs_view
from support.logged import ALL, content

CONTENTS = {path.name: content(path) for path in ALL}
TRACE = CONTENTS["h200_autotune_hang.trace.log.gz"]
TRACEBACK = (
    b'Traceback (most recent call last):\n  File "/a/torch/_inductor/scheduler.py", line 3, in x\n'
    b"\tin between\n    wait()\nKeyboardInterrupt\n"
)
DUMP = (
    b"Thread 0x00007f0a (most recent call first):\n"
    b'  File "/a/torch/_inductor/scheduler.py", line 12 in fuse\n'
    b'  File "a.py", line 1 in <module>\n'
)


def view_of(data: bytes) -> str:
    stream, damage = io.BytesIO(data), list[str]()
    found = reading._fold(
        [Log("log", ("log",))], lambda path, file: blocks.read_events(stream.read, damage=damage)
    )
    counted = [(file.lines, file.torch_lines) for file in found.files]
    view = logs_view(found, analyse_answers(judge(found)))
    return json.dumps([view, counted], default=str, sort_keys=True)


@pytest.fixture
def the_long_way(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], str]:
    def read(data: bytes) -> str:
        with monkeypatch.context() as patch:
            whole = lambda data, end: Outside(data, data, end, lambda place: place, [])  # noqa: E731
            patch.setattr(lines, "outside_payloads", whole)
            patch.setattr(lines, "without_passed_phases", lambda found: found)
            return view_of(data)

    return read


@pytest.mark.parametrize("name", CONTENTS)
def test_every_recorded_log(name: str, the_long_way: Callable[[bytes], str]) -> None:
    assert view_of(CONTENTS[name]) == the_long_way(CONTENTS[name])


def spoiled(rng: random.Random) -> bytes:
    """A trace that was cut, mixed with another log, or written to by others."""
    data = rng.choice([log for name, log in CONTENTS.items() if ".trace." in name])
    all_lines = data.splitlines(keepends=True)
    changes: list[Callable[[], bytes]] = [
        lambda: data[rng.randrange(len(data)) :],
        lambda: data[: rng.randrange(len(data))],
        lambda: data.replace(b"\n", b"\r\n"),
        lambda: b"".join(line for line in all_lines if rng.random() < 0.97),
        lambda: b"".join(b"[rank0]:" + line for line in all_lines),
        lambda: _inserted(rng, all_lines, TRACEBACK),
        lambda: _inserted(rng, all_lines, DUMP),
        lambda: _inserted(rng, all_lines, b"\n"),
        lambda: _inserted(rng, all_lines, b"\xff\xfe not UTF-8 \x80\n"),
        lambda: _inserted(rng, all_lines, b"x" * 400_000 + b"\n"),
        lambda: _interleaved(rng, all_lines, rng.choice([*CONTENTS.values()])),
    ]
    return rng.choice(changes)()


def _inserted(rng: random.Random, all_lines: list[bytes], what: bytes) -> bytes:
    place = rng.randrange(len(all_lines))
    return b"".join([*all_lines[:place], what, *all_lines[place:]])


def _interleaved(rng: random.Random, all_lines: list[bytes], other: bytes) -> bytes:
    rest = [all_lines[:], other[:300_000].splitlines(keepends=True)]
    found: list[bytes] = []
    while rest[0] or rest[1]:
        part = rng.choice([part for part in rest if part])
        size = rng.choice([1, 3, 20, 200])
        found += part[:size]
        del part[:size]
    return b"".join(found)


@pytest.mark.parametrize("seed", range(16))
def test_spoiled_traces(
    seed: int, the_long_way: Callable[[bytes], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    data = spoiled(rng)
    expected = the_long_way(data)
    monkeypatch.setattr(blocks, "BLOCK", rng.choice([1 << 17, 1 << 20]))
    assert view_of(data) == expected


def test_few_records_of_a_finished_compile_are_left() -> None:
    data = CONTENTS["h200_autotune_ok.trace.log.gz"]
    found = lines.find_events(data, len(data))
    assert data.count(b'{"chromium_event"') == 118
    assert len(found.events) < 20


def record(kind: str, name: str, compile_id: str = "0/0") -> Record:
    return Record("", 7, "1115 00:00:00.000", compile_id, kind, name, 1.0)


@pytest.mark.parametrize(
    ("kinds", "left"),
    [
        # The first stays, and so does the last phase that held no other.
        ("(a (b )b (c )c", "(a (c )c"),
        ("(a (b (x )x )b (c )c", "(a (c )c"),
        # What is open stays, whatever it holds.
        ("(a (b (x )x (y )y", "(a (b (y )y"),
        # An end of what began before says nothing of what follows it.
        ("(a )z (x )x )b (y )y", "(a )z (x )x )b (y )y"),
        # Afterwards nothing runs that could have been cut short.
        ("(a (b )b (gc )gc", "(a (b )b (gc )gc"),
    ],
)
def test_which_phases_are_dropped(kinds: str, left: str) -> None:
    words = {"(": "begin", ")": "end"}
    found = [(n, record(words[w[0]], w[1:])) for n, w in enumerate(kinds.split())]
    signs = {"begin": "(", "end": ")"}
    kept = [signs[event.kind] + event.name for _, event in without_passed_phases(found)]
    assert kept == left.split()


def test_another_compile_in_between_keeps_everything() -> None:
    of_another = record("artifact", "", "1/0")
    events = [record("begin", "a"), record("begin", "b"), of_another, record("end", "b")]
    events += [record("begin", "c"), record("end", "c")]
    found = list(enumerate(events))
    assert without_passed_phases(found) == found
