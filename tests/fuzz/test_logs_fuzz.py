"""Whatever a log holds, reading it never fails."""

from __future__ import annotations

import io
import random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from inductoscope.hangs.logs.answers import judge
from inductoscope.hangs.logs.lines import read_events
from inductoscope.hangs.logs.log_files import Log
from inductoscope.hangs.logs.reading import fold_logs
from inductoscope.torch_facts.log_choices import parse_choice
from inductoscope.views.report.logs import View, logs_view, print_logs
from inductoscope.views.report.terminal import Printer
from support.effort import examples
from support.logged import ALL, content

# The lines that matter, from all recorded logs: a mutation of one of them counts.
WORDS = (
    b"Submitted", b"Precompil", b"Waiting", b"Exception", b"AUTOTUNE", b"Traceback", b"KeyboardI",
    b"Multithreaded", b"chromium", b'"ph"', b'"name"', b"compilation_metrics", b"Step ", b"  File",
)  # fmt: skip
LINES = [
    line[:1500]
    for log in ALL
    for line in content(log).split(b"\n")
    if any(word in line[:400] for word in WORDS)
]
LINES = random.Random(0).sample(LINES, 400)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """Some of the lines, in any order, cut, doubled and spoiled."""
    chosen = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=12))
    data = bytearray(draw(st.sampled_from([b"\n", b"\r\n", b"\n\t", b" "])).join(chosen))
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(data)))
        what = draw(st.binary(max_size=6) | st.sampled_from([b"(", b")", b"\n", b"'", b"[0/0] "]))
        data[place : place + draw(st.integers(0, 40))] = what
    return bytes(data)


def read(data: bytes) -> View:
    """Everything that the command does with a log, up to the data that it prints."""
    stream = io.BytesIO(data)
    reading = fold_logs([Log("log", ("log",))], lambda file: read_events(stream.read, file.damage))
    return logs_view(reading.files, judge(reading))


def report(data: bytes) -> None:
    """Everything that the command does."""
    print_logs(Printer(io.StringIO()), read(data))


@settings(
    max_examples=examples(1500),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(mutated())
def test_a_spoiled_log_is_read(data: bytes) -> None:
    read(data)


@settings(
    max_examples=examples(100),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@given(mutated())
def test_a_spoiled_log_is_reported(data: bytes) -> None:
    report(data)


@settings(max_examples=examples(300), deadline=None, derandomize=True)
@given(st.binary(max_size=2000))
def test_any_bytes_are_read(data: bytes) -> None:
    read(data)


@settings(max_examples=examples(1000), deadline=None, derandomize=True)
@given(st.text("aA(){}[]<>'\",=: 0x.1\\/", max_size=60))
def test_any_choice_is_read(text: str) -> None:
    parse_choice(text)
    parse_choice(f"SomeCaller({text})")


def test_logs_cut_anywhere_are_read() -> None:
    rng = random.Random(1)
    for log in ALL:
        data = content(log)
        for _ in range(2):
            start = rng.randrange(len(data))
            report(data[start : start + 60_000])
