"""Text from a stranger's recording that can do nothing to a terminal."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import IO, Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from inductoscope.doctor.repro.graph_script import find_graph, write_script
from inductoscope.errors import unwritable
from inductoscope.model.entities import Recording
from inductoscope.model.fx import read_graph
from inductoscope.recording.codec import as_json
from inductoscope.torch_facts.operator_names import with_usual_names

# Controls, marks that reorder what follows, further line ends, and halves of characters.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with control characters written out, tabs and line ends kept.

    Operators have their usual names, whoever wrote the text.
    """
    return _UNSAFE.sub(lambda match: _escape(ord(match[0])), with_usual_names(text))


def visible_data(value: Any) -> Any:
    """A value of JSON, with every text in it made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [visible_data(item) for item in value]
    if isinstance(value, dict):
        return {visible(key): visible_data(item) for key, item in value.items()}
    return value


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


# --- Shows text that is longer than the terminal in a pager, as git does --------------------------
#
# What is redirected, and what fits on the screen, is written as it is. So is everything if there is
# no pager, or if it cannot be started: a pager is a convenience, and the text is what counts.

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


# --- Operations that became the same but for names, as in the repeated layers of a model ----------

View = dict[str, Any]

# What follows a full stop, or is called, is an operation or an attribute: it means what it says.
_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*\b(?!\()")
# Names with a number: buffers, nodes, copies of an operation, variables and pointers of a kernel.
_NUMBERED = re.compile(
    r"(?:buf|op|tmp|tmp_acc|arg|primals_|tangents_|in_ptr|out_ptr|in_out_ptr)\d+(?:_\w+)?"
    r"|[A-Za-z_]\w*_\d+"
)
_CONSTANTS = frozenset(("True", "False", "None", "inf", "nan"))


def alike(operations: list[View]) -> list[list[int]]:
    """The positions of operations, those together that differ in nothing but names."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for number, operation in enumerate(operations):
        groups.setdefault(tuple(_without_names(operation)), []).append(number)
    return list(groups.values())


def _without_names(operation: View) -> Iterator[str]:
    """Each level as text, with every name in it replaced by its turn among the names there."""
    known = set(_names(operation))
    yield operation["graph"]
    yield str(operation["python"])
    yield str(operation["made_from"])
    ir = operation["ir"] or {}
    lines = [[line["text"].strip() for line in one["lines"]] for one in operation["kernel"]]
    nodes = [_in_no_order(node) for node in operation["scheduler"]]
    levels = [operation[name] for name in ("dynamo", "aten", "fused_group")]
    for level in (*levels, nodes, ir.get("nodes"), operation["loop_body"], lines):
        yield _renamed(json.dumps(level, default=str), known)


def _in_no_order(node: View) -> View:
    """A scheduler node without the order of what it reads and who uses it: that is by name."""
    users = [user for names in node["users"].values() for user in names]
    return {**node, "reads": len(node["reads"]), "users": (len(users), "OUTPUT" in users)}


def _names(operation: View) -> Iterator[str]:
    """Names that have no number to know them by: results, arguments, origins, lines of loops."""
    yield operation["aten"]["name"]
    for item in (*operation["scheduler"], *operation["fused_group"]):
        yield from item["origins"]
    texts = [operation["aten"]["text"], *operation["dynamo"]]
    lines = [line for body in operation["loop_body"] for line in body["lines"]]
    for text in (*texts, *lines):
        result, _, call = text.partition(" = ")
        yield from _WORD.findall(result)
        yield from set(_WORD.findall(call.partition("(")[2])) - _CONSTANTS


def _renamed(text: str, known: set[str]) -> str:
    turns: dict[str, int] = {}

    def rename(match: re.Match[str]) -> str:
        word = match[0]
        if word not in known and not _NUMBERED.fullmatch(word):
            return word
        return f"#{turns.setdefault(word, len(turns))}"

    return _WORD.sub(rename, text)


# --- `show --runnable`: a recorded graph as a script on disk --------------------------------------


def runnable_view(recording: Recording, name: str, target: str) -> View:
    """Write the script and say where; '-' puts its text into the view instead."""
    found = find_graph(recording, name)
    script = write_script(found, read_graph(recording, found.digest))
    if target == "-":
        return {"graph": found.name, "path": None, "script": script}
    # The name comes from the recording, so nothing in it may lead out of this folder.
    name = re.sub(r"[^\w.#-]", "_", found.name)
    path = Path(target or f"graph_{name}.py").absolute()
    try:
        path.write_text(script, "utf-8", "backslashreplace")
    except OSError as error:
        raise unwritable(path, error) from error
    return {"graph": found.name, "path": str(path), "script": script}


def print_runnable(printer: Printer, view: View) -> None:
    """The script itself, or where it is."""
    if view["path"] is None:
        printer.code(view["script"], indent=0)
    else:
        printer.line(f"{view['graph']} written to {view['path']}")
        printer.line(
            "It makes inputs of the recorded shapes, runs the graph in eager and compiled,"
        )
        printer.line("and compares the two.")


# --- Prints on a terminal what may come from a stranger's recording -------------------------------
#
# Everything is shown as text: markup is not interpreted, and control characters, which could move
# the cursor or recolour the screen, are written out.

SCHEMA = 1

HEADING = "bold"
GOOD = "green"
BAD = "bold red"
WARN = "yellow"
FAINT = "dim"


class _QuietConsole(Console):
    """Leaves it to the command line what happens when nobody reads any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class Printer:
    """Writes lines to one stream, with colours where it is a terminal."""

    def __init__(self, file: IO[str] | None = None, *, is_terminal: bool | None = None) -> None:
        """`is_terminal` says so of a file that is shown on one later."""
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
        """Columns of the terminal."""
        return self._console.width

    def line(self, text: str = "", *, style: str = "", indent: int = 0, column: int = 0) -> None:
        """One paragraph, wrapped at the terminal's width with its indent kept.

        What is wrapped begins below the column of the text that is given.
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
        """Whether there is nothing to colour and nothing to wrap, as of most lines."""
        is_plain = not style or self._console.color_system is None
        # Then it has as many columns as characters.
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
        """A line that begins a part."""
        self.line(text, style=HEADING)

    def code(self, text: str, *, indent: int = 2) -> None:
        """Lines kept as they are: code is not wrapped, a terminal or pager can scroll it."""
        lines = [" " * indent + line for line in visible(text).splitlines()]
        if lines:
            self._console.print(Text("\n".join(lines)), soft_wrap=True)

    def whole(self, text: str, *, style: str = "") -> None:
        """One line kept as it is, however long."""
        self._console.print(Text(visible(text), style=style), soft_wrap=True)

    def pair(self, name: str, value: str, *, indent: int = 2, width: int = 14) -> None:
        """A name and its value, the value wrapped beside the name, or below a long one."""
        name = " ".join(visible(name).split())
        if len(name) >= self.width // 2:
            self.line(name, indent=indent)
            name = ""
        width = max(width, len(name) + 1)
        lines = Text(visible(value)).wrap(self._console, max(20, self.width - indent - width)) or [
            Text("")
        ]
        for number, piece in enumerate(lines):
            label = name.ljust(width) if number == 0 else " " * width
            piece.rstrip()
            self._console.print(Text(" " * indent + label) + piece, soft_wrap=True)


def _plain(value: Any) -> Any:
    return as_json(value) if is_dataclass(value) else str(value)


def write_json(view: Mapping[str, Any], target: str) -> None:
    """Write a view as JSON to a file, or to standard output for '-'.

    docs/schemas describes the output of every command. Its `schema` is raised when a key is renamed
    or removed, not when one is added.
    """
    text = _as_text(view)
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, "utf-8")
    except OSError as error:
        raise unwritable(target, error) from error


def replace_json(view: Mapping[str, Any], target: str) -> bool:
    """Write a view so that a reader sees the old file or the new one. Returns whether that worked.

    It does not where the target is no plain file that may be written to: `write_json` then writes
    to it, or says what is wrong.
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
