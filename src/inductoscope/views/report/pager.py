"""Shows text that is longer than the terminal in a pager, as git does.

What is redirected, and what fits on the screen, is written as it is. So is everything if there is
no pager, or if it cannot be started: a pager is a convenience, and the text is what counts.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from inductoscope.views.report.terminal import Printer

# The pager for this tool alone; 'cat' for none. PAGER counts if it is not set.
PAGER_VARIABLE = "INDUCTOSCOPE_PAGER"

_NONE = ("", "cat")
# What less does if LESS does not say: quit if all fits, pass colours on, leave the text there.
_LESS = "FRX"
# How a shell says that it cannot run a program.
_NOT_RUN = (126, 127)


@contextlib.contextmanager
def paged(*, wanted: bool = True) -> Iterator[Printer]:
    """A printer whose lines appear when the block ends, in a pager if they are many."""
    pager = chosen_pager() if wanted and _can_scroll() else []
    if not pager:
        yield Printer()
        return
    page = io.StringIO()
    try:
        yield Printer(page, is_terminal=True)
    except BaseException:
        sys.stdout.write(page.getvalue())  # As far as it got.
        raise
    text = page.getvalue()
    if not is_longer_than_screen(text) or not _show(text, pager):
        sys.stdout.write(text)


def chosen_pager() -> list[str]:
    """The words of the pager's command; empty if there is none."""
    for name in (PAGER_VARIABLE, "PAGER"):
        chosen = os.environ.get(name)
        if chosen is not None:
            try:
                return [] if chosen.strip() in _NONE else shlex.split(chosen)
            except ValueError:
                return []  # A quote that is not closed.
    return ["less"]


def is_longer_than_screen(text: str) -> bool:
    """Whether the text, with its long lines wrapped, leaves no line for the shell's prompt."""
    columns, lines = shutil.get_terminal_size()
    if text.count("\n") >= lines:
        return True
    plain = Text.from_ansi(text).plain.splitlines()
    return sum(max(1, math.ceil(cell_len(line) / columns)) for line in plain) >= lines


def _can_scroll() -> bool:
    """Whether a person is looking, at a terminal that can do more than print."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"
    return False


def _show(text: str, pager: list[str]) -> bool:
    """Let the pager show the text; False if it could not be started."""
    sys.stdout.flush()
    try:
        child = subprocess.Popen(
            pager, stdin=subprocess.PIPE, env={**os.environ, "LESS": os.environ.get("LESS", _LESS)}
        )
    except OSError:
        return False
    # Ctrl-C is for the pager, which stays or leaves; the tool waits until it has left.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert child.stdin is not None
        # The reader may leave before the end.
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(text.encode(sys.stdout.encoding or "utf-8", "backslashreplace"))
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        return child.wait() not in _NOT_RUN
    finally:
        signal.signal(signal.SIGINT, before)
