"""Parser for autotuning choices as torch prints them: TritonTemplateCaller(/a/b.py, BLOCK_M=64).

The grammar is generic, `Name(first, key=value, …)` with nested brackets and quotes, because every
backend has its own caller class and every release adds new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

Value = int | float | bool | str

_CALL = re.compile(r"\s*([A-Za-z_][\w.]*)\((.*)\)\s*$", re.DOTALL)
_OBJECT = re.compile(r"\s*<([\w.]+) object at (0x[0-9a-fA-F]+)>")
_KEY = re.compile(r"\s*([A-Za-z_]\w*)=")
_PAIR = re.compile(r"\s*['\"]([^'\"]+)['\"]\s*:\s*(.*)", re.DOTALL)
_OPEN, _CLOSE = "([{<", ")]}>"
_MARKS = re.compile(r"""[][(){}<>,'"]""")
_FILE_KEYS = ("source_file", "module_path", "path")
_MOST = 16_384


@dataclass(frozen=True)
class Choice:
    """An autotuning choice: its class, its file or name, its configuration."""

    kind: str
    name: str
    configuration: Mapping[str, Value] = field(hash=False)
    text: str = ""

    @property
    def path(self) -> str:
        """The source file, if the choice has one."""
        return self.name if "/" in self.name or "\\" in self.name else ""

    @property
    def short_name(self) -> str:
        """The file name or class name, without a folder."""
        return re.split(r"[/\\]", self.name)[-1]


@lru_cache(maxsize=2048)
def parse_choice(text: str) -> Choice:
    """Parse a choice; text of an unknown form is kept as its name."""
    text = text.strip()
    thing = _OBJECT.match(text)
    if thing is not None:
        return Choice(thing[1].rpartition(".")[2], thing[2], {}, text)
    call = _CALL.match(text[:_MOST])
    if call is None:
        return Choice("", text[:200], {}, text)
    arguments = list(split_arguments(call[2]))
    if len(arguments) == 1 and (_CALL.match(arguments[0]) or _OBJECT.match(arguments[0])):
        inner = parse_choice(arguments[0])  # A wrapper around the real caller.
        return Choice(inner.kind, inner.name, inner.configuration, text)
    return _choice(call[1].rpartition(".")[2], arguments, text)


def whole_choice(text: str) -> str | None:
    """Return the choice at the start of a text; None if the text ends inside the choice.

    Lines get cut, and lines of several processes get joined.
    """
    alone = ".py:" not in text  # No header of a further line.
    if alone and text.endswith((")", ">")) and text.count("(") == text.count(")"):
        return text
    if text.startswith("<"):
        end = text.find(">")
        return text[: end + 1] if end >= 0 else None
    closed = (
        place
        for place, letter, depth in _outside_quotes(text, "(", ")")
        if letter == ")" and not depth
    )
    return text[: next(closed, -1) + 1] or None


def _choice(kind: str, arguments: list[str], text: str) -> Choice:
    names: list[str] = []
    configuration: dict[str, Value] = {}
    for argument in arguments:
        key = _KEY.match(argument)
        if key is not None and key[1] in _FILE_KEYS:
            names.insert(0, argument[key.end() :].strip().strip("'\""))
        elif key is not None:
            configuration[key[1]] = _value(argument[key.end() :])
        elif argument.strip().startswith("{"):
            configuration.update(_pairs(argument.strip()[1:].rstrip("} ")))
        elif argument.strip():
            names.append(argument.strip().strip("'\""))
    return Choice(kind, names[0] if names else "", configuration, text)


def _pairs(text: str) -> Iterator[tuple[str, Value]]:
    for part in split_arguments(text):
        pair = _PAIR.match(part)
        if pair is not None:
            yield pair[1], _value(pair[2])


def split_arguments(text: str, opening: str = _OPEN, closing: str = _CLOSE) -> Iterator[str]:
    """Split text at commas, except inside brackets or quotes."""
    start = 0
    for place, letter, depth in _outside_quotes(text, opening, closing):
        if letter == "," and depth == 0:
            yield text[start:place]
            start = place + 1
    if text[start:].strip():
        yield text[start:]


def _outside_quotes(text: str, opening: str, closing: str) -> Iterator[tuple[int, str, int]]:
    """Yield brackets and commas outside quotes, each with its index and the depth after it."""
    depth, quote = 0, ""
    for mark in _MARKS.finditer(text):
        letter = mark[0]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth = max(0, depth + (letter in opening) - (letter in closing))
            yield mark.start(), letter, depth


def _value(text: str) -> Value:
    text = text.strip()
    if text in ("True", "False"):
        return text == "True"
    for number in (int, float):
        try:
            found = number(text)
        except (ValueError, OverflowError):
            continue
        if found == found and abs(found) != float("inf"):
            return found
    return text.strip("'\"")
