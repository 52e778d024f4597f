"""Output of untrusted text on a terminal.

Everything is shown as text: markup is not interpreted, and control characters, which could move
the cursor or recolour the screen, are written out.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.text import Text

from inductoscope.errors import unwritable
from inductoscope.recording.codec import as_json
from inductoscope.torch_facts.printed_graphs import with_usual_names
from inductoscope.views.plain_text import visible

SCHEMA = 1

HEADING = "bold"
GOOD = "green"
BAD = "bold red"
WARN = "yellow"
FAINT = "dim"


class _QuietConsole(Console):
    """A console that leaves the handling of broken pipes to the command line."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Printer:
    """A printer of lines to one stream, with colours on a terminal."""

    def __init__(self, file: IO[str] | None = None, *, is_terminal: bool | None = None) -> None:
        """`is_terminal` enables terminal output for a file that is shown on one later."""
        self._console = _QuietConsole(
            file=file or sys.stdout,
            force_terminal=is_terminal,
            # In a notebook rich would display every line instead of writing it.
            force_jupyter=False,
            highlight=False,
            markup=False,
            emoji=False,
            soft_wrap=False,
        )

    @property
    def width(self) -> int:
        """The number of columns of the terminal."""
        return self._console.width

    def line(self, text: str = "", *, style: str = "", indent: int = 0, column: int = 0) -> None:
        """Print a paragraph, wrapped at the terminal's width with its indent kept.

        Continuation lines are indented to the given column of the text.
        """
        shown = visible(text)
        if self._is_one_plain_line(shown, style, indent):
            self._write(" " * indent + shown[:column] + shown[column:].rstrip())
            return
        first, indent = Text(" " * indent + shown[:column], style=style), indent + column
        rest = Text(shown[column:], style=style)
        for piece in rest.wrap(self._console, max(20, self.width - indent)) or [Text("")]:
            piece.rstrip()
            self._console.print(first + piece, soft_wrap=True)
            first = Text(" " * indent)

    def _is_one_plain_line(self, shown: str, style: str, indent: int) -> bool:
        """Check for a line without colours or wrapping, which can bypass rich."""
        is_plain = not style or self._console.color_system is None
        # An ASCII line has as many columns as characters.
        return (
            is_plain
            and shown.isascii()
            and shown.isprintable()
            and indent + len(shown) <= self.width
        )

    def _write(self, line: str) -> None:
        self._console.file.write(line + "\n")
        self._console.file.flush()

    def heading(self, text: str) -> None:
        self.line(text, style=HEADING)

    def code(self, text: str, *, style: str = "", indent: int = 2) -> None:
        """Print lines without wrapping: a terminal or pager can scroll code."""
        lines = [" " * indent + line for line in visible(text).splitlines()]
        if lines:
            self._console.print(Text("\n".join(lines), style=style), soft_wrap=True)

    def pair(self, name: str, value: str, *, indent: int = 2, width: int = 14) -> None:
        """Print a name and its value, wrapped beside the name, or below a long one."""
        name = " ".join(visible(name).split())
        if len(name) >= self.width // 2:
            self.line(name, indent=indent)
            name = ""
        width = max(width, len(name) + 1)
        self.line(name.ljust(width) + value, indent=indent, column=width)

    def pairs(self, facts: Mapping[str, str | None], *, indent: int = 2) -> None:
        """Print names with their values, without those that are empty."""
        for name, value in facts.items():
            if value:
                self.pair(name, value, indent=indent)


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return as_json(value)
    return dict(value) if isinstance(value, Mapping) else str(value)


def write_json(view: Mapping[str, Any], target: str) -> None:
    """Write a view as JSON to a file, or to standard output for '-'.

    docs/schemas describes the output of every command. Its `schema` is raised when a key is renamed
    or removed, not when one is added.
    """
    if target == "-":
        sys.stdout.write(_as_text(view))
    elif not replace_json(view, target):
        try:
            Path(target).write_text(_as_text(view), "utf-8")
        except OSError as error:
            raise unwritable(target, error) from error


def replace_json(view: Mapping[str, Any], target: str) -> bool:
    """Replace a JSON file atomically. Return whether that worked.

    It fails if the target is not a writable regular file: `write_json` then writes to it, or
    reports the error.
    """
    path = Path(target)
    if path.is_symlink() or (path.exists() and not (path.is_file() and os.access(path, os.W_OK))):
        return False
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(_as_text(view), "utf-8")
        unfinished.replace(path)
        return True
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        return False


def _as_text(view: Mapping[str, Any]) -> str:
    data = {"schema": SCHEMA, **view}
    return with_usual_names(json.dumps(data, indent=1, ensure_ascii=True, default=_plain) + "\n")


# --- long output in a pager -----------------------------------------------------------------------

# The pager for this tool alone; 'cat' for none. PAGER counts if it is not set.
PAGER_VARIABLE = "INDUCTOSCOPE_PAGER"
# The default for LESS: quit if all fits, pass colours on, keep the text on screen.
_LESS = "FRX"


@contextlib.contextmanager
def paged(*, wanted: bool = True) -> Iterator[Printer]:
    """Yield a printer whose output appears at the end of the block, in a pager on a terminal.

    Redirected output is not paged.
    """
    if not wanted or not _can_scroll() or _chosen_pager() in ("", "cat"):
        yield Printer()
        return
    page = io.StringIO()
    try:
        yield Printer(page, is_terminal=True)
    except BaseException:
        sys.stdout.write(page.getvalue())  # Show the output so far.
        raise
    _show(page.getvalue())


def _chosen_pager() -> str | None:
    return os.environ.get(PAGER_VARIABLE, os.environ.get("PAGER"))


def _can_scroll() -> bool:
    """Check that standard output is a terminal that can do more than print."""
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"
    return False


def _show(text: str) -> None:
    """Show the text in a pager, started by click and configured by the environment."""
    if text.count("\n") < shutil.get_terminal_size().lines:
        sys.stdout.write(text)
        return
    # Nothing else that this process starts from here on reads them.
    os.environ.setdefault("LESS", _LESS)
    os.environ["PAGER"] = _chosen_pager() or ""
    try:
        click.echo_via_pager(text, color=True)
    except ValueError:  # PAGER has an unclosed quote.
        sys.stdout.write(text)
