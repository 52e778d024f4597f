"""Long output: in a pager on a terminal, and as it is everywhere else."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.text import Text

from support.examples import inductoscope, stored

# Longer than a screen of 24 lines, shorter than one of 9000.
LONG = ("show", str(stored("training_step")), "--stage", "ir")
END = "[end of the pager]"


@dataclass
class Terminal:
    """The tool on a terminal of 80 columns, as a person sees it."""

    process: subprocess.Popen[bytes]
    screen: int
    seen: str = field(default="")

    def read(self, until: str = "", seconds: float = 20.0) -> str:
        """Output so far, until a text does or the tool has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not (until and until in self.seen):
            try:
                self.seen += os.read(self.screen, 65536).decode("utf-8", "replace")
            except OSError:
                break  # Nobody has the terminal any more.
        return self.seen

    def type(self, keys: str) -> None:
        os.write(self.screen, keys.encode())

    def exit_code(self) -> int:
        self.read()
        return self.process.wait(20)


@contextlib.contextmanager
def terminal(*words: str, lines: int = 24, **variables: str) -> Iterator[Terminal]:
    screen, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
    environment = {
        k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "PAGER", "LESS")
    }
    environment.pop("INDUCTOSCOPE_PAGER", None)
    process = subprocess.Popen(
        [sys.executable, "-m", "inductoscope", *words],
        stdin=side,
        stdout=side,
        stderr=side,
        env={**environment, "TERM": "xterm", **variables},
        # Ctrl-C on this terminal reaches the tool and its pager.
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(side, termios.TIOCSCTTY, 0)),
    )
    os.close(side)
    try:
        yield Terminal(process, screen)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        os.close(screen)


@pytest.fixture
def pager(tmp_path: Path) -> str:
    """A pager that shows all at once and says that it was there."""
    program = tmp_path / "pager"
    program.write_text(f"#!/bin/sh\ncat\necho '{END}'\n")
    program.chmod(0o755)
    return str(program)


def test_what_is_longer_than_the_screen_is_paged(pager: str) -> None:
    with terminal(*LONG, PAGER=pager) as shown:
        assert shown.exit_code() == 0
    assert END in shown.seen
    paged = Text.from_ansi(shown.seen.replace("\r", "")).plain
    assert paged.replace(END, "").split() == inductoscope(*LONG).stdout.split()


def test_what_fits_on_the_screen_is_not(pager: str) -> None:
    with terminal(*LONG, lines=9000, PAGER=pager) as shown:
        assert shown.exit_code() == 0
    assert END not in shown.seen
    assert "0/0" in shown.seen


@pytest.mark.parametrize(
    ("words", "variables"),
    [
        (("--no-pager",), {}),
        ((), {"INDUCTOSCOPE_PAGER": "cat"}),
        ((), {"INDUCTOSCOPE_PAGER": ""}),
        ((), {"TERM": "dumb"}),
        (("--json", "-"), {}),
    ],
)
def test_whoever_wants_no_pager_gets_none(
    words: tuple[str, ...], variables: dict[str, str], pager: str
) -> None:
    with terminal(*LONG, *words, **{"PAGER": pager, **variables}) as shown:
        assert shown.exit_code() == 0
    assert END not in shown.seen
    assert len(shown.seen.splitlines()) > 24


@pytest.mark.parametrize(
    "words", [("recordings", "--no-pager", "list"), ("recordings", "list", "--no-pager")]
)
def test_no_pager_counts_before_and_after_a_sub_command(words: tuple[str, ...], pager: str) -> None:
    with terminal(*words, lines=1, PAGER=pager) as shown:
        assert shown.exit_code() == 0
    assert "recording" in shown.seen
    assert END not in shown.seen


@pytest.mark.parametrize("missing", ["/no/such/pager -R", "less 'unfinished"])
def test_a_pager_that_cannot_be_started_is_done_without(missing: str) -> None:
    with terminal(*LONG, PAGER=missing) as shown:
        assert shown.exit_code() == 0
    assert len(shown.seen.splitlines()) > 24


def test_less_is_left_with_q() -> None:
    with terminal(*LONG) as shown:
        shown.read(until=":")
        shown.type("q")
        assert shown.exit_code() == 0
    assert len(shown.seen.splitlines()) < 40
    assert "Traceback" not in shown.seen


def test_ctrl_c_ends_a_pager_and_leaves_nothing_behind(tmp_path: Path) -> None:
    program = tmp_path / "slow"
    program.write_text(
        f"#!{sys.executable}\nimport sys, time\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    program.chmod(0o755)
    with terminal(*LONG, PAGER=str(program)) as shown:
        shown.read(until="ready")
        shown.type("\x03")
        assert shown.exit_code() == 0
        with pytest.raises(ProcessLookupError):
            os.killpg(shown.process.pid, signal.SIGKILL)
    assert shown.seen.count("Traceback") == 1  # The pager's own.


def test_redirected_output_is_never_paged(pager: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "inductoscope", *LONG],
        env={**os.environ, "PAGER": pager},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == inductoscope(*LONG).stdout


@pytest.mark.parametrize("words", [LONG, (*LONG, "--json", "-"), ("explain", "fusion")])
def test_a_reader_that_leaves_early_hears_nothing(words: tuple[str, ...]) -> None:
    """As in: inductoscope show | head -1."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "inductoscope", *words],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writing)
    assert done.stderr == ""
    assert done.returncode == 128 + signal.SIGPIPE
