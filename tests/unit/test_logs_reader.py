"""Logs of every origin: what launchers add, damaged and enormous files, several cores."""

from __future__ import annotations

import bz2
import functools
import gzip
import itertools
import json
import lzma
import random
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from inductoscope.hangs.logs import lines as blocks
from inductoscope.hangs.logs import reading
from inductoscope.hangs.logs.answers import Kind, judge
from inductoscope.hangs.logs.lines import AHEAD, BLOCK
from inductoscope.hangs.logs.log_files import find_logs
from inductoscope.torch_facts.log_text import label_of
from inductoscope.torch_facts.torch_trace import Record
from inductoscope.views.report.logs import logs_view
from support.examples import inductoscope
from support.logged import (
    ALL,
    HANG,
    LogText,
    answers,
    content,
    interleaved,
    only_answer,
    stuck_names,
)


def hang(**options: object) -> LogText:
    log = LogText(**options)  # type: ignore[arg-type]
    return log.group("a4", "b8").wait().finish("a4")


def is_the_hang(path: Path) -> bool:
    answer = only_answer(path)
    return answer.kind is Kind.COMPILE_HANG and stuck_names(answer.groups[0]) == ["b8.py"]


# --- what others put into the lines ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "label"),
    [
        ("[rank0]:", "[rank0]:"),
        ("[default3]:", "[default3]:"),
        ("[default0]:[rank8]:", "[default0]:[rank8]:"),
        ("7: ", "7:"),
        ("2026-11-15T00:25:29.431000123Z ", ""),
        ("2026-11-15T00:25:29.431000123Z stderr F ", ""),
        ("[2026-11-15 00:25:29] ", ""),
        ("2026-11-15 00:25:29,431 [rank1]:", "[rank1]:"),
        ("Nov 15 00:25:29 ", ""),
        ("Nov  5 00:25:29 node7 python[123]: ", "node7 python[123]:"),
        ("trainer-1  | ", "trainer-1  |"),
        ("[pod/train-0/main] ", "[pod/train-0/main]"),
        ("[1,0]<stderr>:", "[1,0]<stderr>:"),
        ("(TrainWorker pid=12, ip=10.0.0.1) ", "(TrainWorker pid=12, ip=10.0.0.1)"),
    ],
)
def test_what_launchers_and_job_systems_put_before_a_line(
    tmp_path: Path, prefix: str, label: str
) -> None:
    assert label_of(prefix.encode()) == label
    assert is_the_hang(hang(prefix=prefix).write(tmp_path / "log"))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("CRLF", lambda data: data.replace(b"\n", b"\r\n")),
        ("colours", lambda data: data.replace(b"V1115", b"\x1b[32mV1115\x1b[0m")),
        ("UTF-16", lambda data: data.decode().encode("utf-16")),
        ("invalid UTF-8", lambda data: data.replace(b"\n", b"\n\xff\xfe\x80\n")),
        ("NULs", lambda data: data.replace(b"\n", b"\n\0\0\0\n")),
        ("a progress bar", lambda data: data.replace(b"\n", b"\n 10%|#   | 1/10\r")),
        ("twice each", lambda data: b"".join(2 * (line + b"\n") for line in data.split(b"\n"))),
        ("no last line end", lambda data: data.rstrip(b"\n")),
    ],
)
def test_what_happens_to_logs(tmp_path: Path, name: str, change) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "log"
    path.write_bytes(change(hang().bytes))
    assert is_the_hang(path)


def test_ranks_in_one_file_are_told_apart(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    done = LogText(prefix="[rank0]:", process=5).group("a4", "b8").wait().finish("a4", "b8")
    done.torch("Precompilation elapsed time: 2s").torch("Starting autotuning")
    done.torch("Autotuning elapsed time: 1s")
    done.torch("Step 3: torchinductor done compiling FORWARDS graph 0", level="I")
    done.raw("[E1115 00:25:34 ProcessGroupNCCL.cpp:1] Watchdog caught collective operation timeout")
    path = tmp_path / "log"
    lines = interleaved(done, hang(prefix="[rank1]:", process=6))
    path.write_text("\n".join(lines) + "\n")
    first, second = answers(path)
    assert (first.kind, first.program.label) == (Kind.COMPILE_HANG, "[rank1]:")
    assert second.title == snapshot
    assert second.program.label == "[rank0]:"


def test_ranks_with_no_prefix_are_told_apart_by_process(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    path = tmp_path / "log"
    path.write_text("\n".join(interleaved(hang(process=5), hang(process=6))) + "\n")
    assert [stuck_names(a.groups[0]) for a in answers(path)] == [["b8.py"], ["b8.py"]]
    assert inductoscope("logs", path).words == snapshot


def test_two_runs_in_one_file(tmp_path: Path) -> None:
    good = LogText().torch("compile_threads set to 8", level="I", module="config.py", own=False)
    good.group("a4").wait().finish("a4").torch("Precompilation elapsed time: 2s")
    good.torch("Starting autotuning").torch("Autotuning elapsed time: 1s")
    good.torch("Step 3: torchinductor done compiling FORWARDS graph 0", level="I")
    good.torch("Cache Metrics:", level="I", module="remote_cache.py", own=False)
    path = tmp_path / "log"
    path.write_bytes(hang().bytes + good.bytes)
    first, second = answers(path)
    assert (first.kind, first.program.run) == (Kind.COMPILE_HANG, 1)
    assert (second.kind, second.program.run) == (Kind.CLEAN, 2)


def test_ctrl_c_twice_keeps_the_traceback_that_tells(tmp_path: Path) -> None:
    log = hang()
    log.raw("Traceback (most recent call last):")
    log.raw('  File "/x/torch/_inductor/select_algorithm.py", line 3, in wait_on_futures')
    log.raw("    for future in as_completed(").raw("KeyboardInterrupt")
    log.raw("Exception ignored in: <module 'threading'>")
    log.raw("Traceback (most recent call last):")
    log.raw('  File "/usr/lib/python3.12/threading.py", line 1, in _shutdown')
    log.raw("KeyboardInterrupt: ")
    assert only_answer(log.write(tmp_path / "log")).confidence == "proven"


def test_a_traceback_between_the_lines_of_another_rank(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    first = LogText(prefix="[rank0]: ", process=5).torch("x", module="torch/_dynamo/guards.py")
    first.raw("Traceback (most recent call last):").raw('  File "/a/train.py", line 9, in main')
    first.raw("    model(x)").raw("ValueError: no such thing")
    path = tmp_path / "log"
    path.write_text("\n".join(interleaved(first, hang(prefix="[rank1]: ", process=6))) + "\n")
    by_label = {answer.program.label: answer for answer in answers(path)}
    assert by_label["[rank0]:"].title == snapshot
    assert by_label["[rank1]:"].kind is Kind.COMPILE_HANG


def test_an_exception_that_was_survived_is_not_the_end(tmp_path: Path) -> None:
    log = LogText().raw("Traceback (most recent call last):").raw("ValueError: caught and printed")
    log.group("a4", "b8").wait().finish("a4")
    assert is_the_hang(log.write(tmp_path / "log"))


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_files_are_read(tmp_path: Path, compress) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "log"
    path.write_bytes(compress(hang().bytes))
    assert is_the_hang(path)


def test_a_compressed_file_that_is_cut_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(content(HANG))[:-2000])
    answer = inductoscope("logs", path)
    assert answer.exit_code == 1
    assert "reading stopped early" in answer.words


def test_the_parts_of_a_rotated_log_are_one_log(tmp_path: Path) -> None:
    lines = hang().bytes.splitlines(keepends=True)
    (tmp_path / "train.log.2.gz").write_bytes(gzip.compress(b"".join(lines[:3])))
    (tmp_path / "train.log.1").write_bytes(b"".join(lines[3:6]))
    (tmp_path / "train.log").write_bytes(b"".join(lines[6:]))
    (answer,) = answers(tmp_path)
    assert stuck_names(answer.groups[0]) == ["b8.py"]


def test_numbered_files_with_no_plain_one_are_ranks(tmp_path: Path) -> None:
    for number in range(3):
        hang().write(tmp_path / f"out.{number}")
    assert len(find_logs([str(tmp_path)])) == 3
    assert len(answers(tmp_path)) == 3


def test_a_folder_is_searched_for_logs_only(tmp_path: Path) -> None:
    hang().write(tmp_path / "stderr.log")
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "kernel.py").write_bytes(hang().bytes)
    assert len(answers(tmp_path)) == 1


# --- size -----------------------------------------------------------------------------------------


def view_of(path: Path, cores: int) -> str:
    found = reading.read_logs(find_logs([str(path)]), cores=cores)
    from inductoscope.hangs.logs.answers import judge

    return json.dumps(logs_view(found.files, judge(found)), default=str)


def test_many_cores_and_one_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(content(log) for log in ALL))
    expected = view_of(path, 1)
    for piece in (50_000, 300_001):
        monkeypatch.setattr(reading, "PIECE", piece)
        assert view_of(path, 2) == expected


TOGETHER = b"".join(content(log) for log in ALL if "two_groups" in log.name) + content(HANG)


@settings(max_examples=12, deadline=None, derandomize=True)
@given(cuts=st.lists(st.integers(1, len(TOGETHER) - 1), max_size=6))
def test_it_does_not_matter_where_a_file_is_divided(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    path = tmp_path_factory.getbasetemp() / "divided"
    if not path.exists():
        path.write_bytes(TOGETHER)
    starts = sorted({TOGETHER.find(b"\n", cut) + 1 or len(TOGETHER) for cut in cuts})
    assert read_in_pieces(path, (0, *starts, len(TOGETHER))) == read_whole(path)


@functools.cache
def read_whole(path: Path) -> str:
    return read_in_pieces(path, (0, len(TOGETHER)))


def read_in_pieces(path: Path, bounds: tuple[int, ...]) -> str:
    """The view of a log of which each piece was read by itself."""
    pieces = [
        p for a, b in itertools.pairwise(bounds) for p in reading.read_piece(str(path), (a, b))[0]
    ]
    found = reading.fold_logs(find_logs([str(path)]), lambda file: pieces)
    return json.dumps(logs_view(found.files, judge(found)), default=str)


def test_small_blocks_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(content(HANG))
    expected = view_of(path, 1)
    monkeypatch.setattr(blocks, "BLOCK", 10_000)
    assert view_of(path, 1) == expected


@pytest.mark.parametrize("size", [BLOCK, 2 * BLOCK - AHEAD + 1000, 2 * BLOCK, 9 * BLOCK])
def test_a_line_as_long_as_a_block_is_passed_over(tmp_path: Path, size: int) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * size + b"\n" + hang().bytes)
    assert is_the_hang(path)


def test_an_endless_line_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with open(path, "wb") as file:
        file.write(hang().bytes[:-200])
        file.write(b"\n")
        file.truncate(file.tell() + (1 << 30))  # A hole: a line of 1 GB that needs no disk.
        file.seek(0, 2)
        file.write(b"\n" + hang(process=78).bytes)
    # On Linux ru_maxrss of a new process begins with that of the one which started it.
    code = (
        "import re, resource, sys\n"
        "from inductoscope.hangs.logs.log_files import find_logs\n"
        "from inductoscope.hangs.logs.reading import read_logs\n"
        "programs = read_logs(find_logs([sys.argv[1]]), cores=1).programs\n"
        "most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "if sys.platform == 'linux':\n"
        "    most = re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1]\n"
        "print(len(programs), most)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    programs, kilobytes = map(int, done.stdout.split())
    assert programs == 2
    limit = 150_000 * (1024 if sys.platform == "darwin" else 1)
    assert kilobytes < limit, resource.getrusage(resource.RUSAGE_CHILDREN)


# --- damage ---------------------------------------------------------------------------------------

CONTENTS = {path.name: content(path) for path in ALL}
TRACEBACK = (
    b'Traceback (most recent call last):\n  File "/a/torch/_inductor/scheduler.py", line 3, in x\n'
    b"\tin between\n    wait()\nKeyboardInterrupt\n"
)
DUMP = (
    b"Thread 0x00007f0a (most recent call first):\n"
    b'  File "/a/torch/_inductor/scheduler.py", line 12 in fuse\n'
    b'  File "a.py", line 1 in <module>\n'
)


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
def test_spoiled_traces_are_read_the_same_in_blocks_of_any_size(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_bytes(spoiled(random.Random(seed)))
    with monkeypatch.context() as patch:
        patch.setattr(blocks, "without_passed_phases", lambda found: found)
        expected = view_of(path, 1)
    assert view_of(path, 1) == expected
    monkeypatch.setattr(blocks, "BLOCK", 1 << 17)
    assert view_of(path, 1) == expected


# --- phases that are over -------------------------------------------------------------------------


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.name)
def test_phases_that_are_over_change_no_answer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = view_of(path, 1)
    monkeypatch.setattr(blocks, "without_passed_phases", lambda found: found)
    assert view_of(path, 1) == seen


def test_few_records_of_a_finished_compile_are_left() -> None:
    data = CONTENTS["h200_autotune_ok.trace.log.gz"]
    assert data.count(b'{"chromium_event"') == 118
    assert len(blocks.find_events(data, len(data)).events) < 20


def test_a_phase_with_long_arguments_has_ended() -> None:
    """The look-up in the cache adds all components of its key, which come before `ph`."""
    components = '\t"[jez56r7z6b2jmxf] fx_config",\n' * 3000
    data = (
        "V1115 00:09:37.380000 5966 torch/_dynamo/utils.py:2126] "
        '{"chromium_event": {}, "frame_id": 0, "frame_compile_id": 0, "attempt": 0}\n'
        '\t{\n\t"name": "inductor_compile",\n\t"ts": 1794947301285213.0,\n'
        f'\t"args": {{\n\t"components": [\n{components}\t""\n\t]\n\t}},\n\t"ph": "E"\n\t}}\n'
    ).encode()
    ((_, event),) = blocks.find_events(data, len(data)).events
    assert isinstance(event, Record)
    assert (event.kind, event.name, event.compile_id) == ("end", "inductor_compile", "0/0")


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
        # Another compile in between.
        ("(a (b *1/0 )b (c )c", "(a (b *1/0 )b (c )c"),
    ],
)
def test_which_phases_are_dropped(kinds: str, left: str) -> None:
    words = {"(": "begin", ")": "end", "*": "artifact"}
    found: list[tuple[int, blocks.Event]] = []
    for number, word in enumerate(kinds.split()):
        compile_id = word[1:] if word[0] == "*" else "0/0"
        record = Record("", 7, "1115 00:00:00.000", compile_id, words[word[0]], word[1:], 1.0)
        found.append((number, record))
    kept = [kinds.split()[number] for number, _ in blocks.without_passed_phases(found)]
    assert kept == left.split()
