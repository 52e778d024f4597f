"""Writes the page's contract as TypeScript: `python web/typescript.py`.

Each class becomes an interface and a function that reads it from any JSON: a key that is missing or
has the wrong type becomes an empty value, never an exception.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union

from inductoscope.recording.codec import json_keys
from inductoscope.verdicts import CONFIDENCES, Confidence
from inductoscope.views.page.contract import (
    CHUNKS,
    Index,
    LineNumber,
    PageTable,
    SharedTable,
)

_PLACE = Path(__file__).resolve().parent / "src" / "contract.ts"
_HEAD = """/**
 * Everything that the page is given. Generated from src/inductoscope/views/page/contract.py by
 * `python web/typescript.py`: change it there.
 */

import { IMPORTS } from "./values";
"""

# For each plain type: its TypeScript type, and the function that reads it.
_PLAIN: dict[Any, tuple[str, str]] = {
    str: ("string", "text"),
    bool: ("boolean", "flag"),
    int: ("number", "count"),
    float: ("number", "real"),
    LineNumber: ("number", "count"),
}
# The functions that read a plain value that may be null, and a list of plain values.
_NULLABLE = {int: "whole", float: "number"}
_LISTS = {str: "texts", int: "wholes", LineNumber: "lineNumbers"}
# The functions of values.ts that readers may use.
_READERS = (
    *("byName", "count", "flag", "flagUnlessFalse", "lineNumbers", "list", "number", "object"),
    *("oneOf", "orNull", "real", "sharedTable", "table", "text", "texts", "whole", "wholes"),
)


def type_name(kind: type) -> str:
    """A class's name in TypeScript, where names in other packages do not matter."""
    return kind.__name__.removeprefix("Page")


def hints_of(kind: type) -> dict[str, Any]:
    """The keys of a class in JSON, with their types."""
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in json_keys(kind)}


def inner_type(hint: Any) -> Any:
    """The type X of `X | None`; None for other types."""
    if typing.get_origin(hint) not in (types.UnionType, Union):
        return None
    (inner,) = (one for one in typing.get_args(hint) if one is not type(None))
    return inner


def classes(hint: Any) -> Iterator[type]:
    """Every class that a type uses, dependencies first."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        for inner in hints_of(hint).values():
            yield from classes(inner)
        yield hint
    else:
        for inner in typing.get_args(hint):
            yield from classes(inner)


def _typed(hint: Any) -> str:
    """A type in TypeScript."""
    if hint in _PLAIN:
        return _PLAIN[hint][0]
    inner, arguments = inner_type(hint), typing.get_args(hint)
    if inner is not None:
        return f"{_typed(inner)} | null"
    origin = typing.get_origin(hint)
    if origin is Literal:
        return " | ".join(f'"{value}"' for value in arguments)
    if origin is Mapping:
        return f"Map<string, {_typed(arguments[1])}>"
    if origin in (PageTable, SharedTable, tuple):
        item = _typed(arguments[0])
        return f"({item})[]" if "|" in item else f"{item}[]"
    return type_name(hint)


def _reader(hint: Any) -> str:
    """The function that reads a type."""
    if hint in _PLAIN:
        return _PLAIN[hint][1]
    inner, arguments = inner_type(hint), typing.get_args(hint)
    if inner is not None:
        return _NULLABLE.get(inner) or f"orNull({_reader(inner)})"
    origin = typing.get_origin(hint)
    if origin is Literal:
        return f"oneOf({', '.join(f'{value!r}' for value in arguments)})".replace("'", '"')
    if origin is Mapping:
        return f"byName({_reader(arguments[1])})"
    if origin is PageTable:
        return f"table({_reader(arguments[0])})"
    if origin is SharedTable:
        return f"sharedTable({_reader(arguments[0])})"
    if origin is tuple:
        return _LISTS.get(arguments[0]) or f"list({_reader(arguments[0])})"
    return f"read{type_name(hint)}"


def _class_text(kind: type) -> str:
    name, hints = type_name(kind), hints_of(kind)
    true = {one.name for one in dataclasses.fields(kind) if one.default is True}
    keys = "".join(f"  {key}: {_typed(hint)};\n" for key, hint in hints.items())
    readers = "".join(
        f"  {key}: {'flagUnlessFalse' if key in true else _reader(hint)},\n"
        for key, hint in hints.items()
    )
    return (
        f"export interface {name} {{\n{keys}}}\n\n"
        f"export const read{name} = object<{name}>({{\n{readers}}});\n"
    )


def _meanings() -> str:
    """The meaning of each confidence level."""
    lines = "".join(f"  {one.name}: {json.dumps(one.meaning)},\n" for one in CONFIDENCES)
    return (
        f"export type Confidence = {_typed(Confidence)};\n"
        f"export const CONFIDENCES: Record<Confidence, string> = {{\n{lines}}};\n"
    )


def contract_text() -> str:
    """The whole file."""
    kinds = dict.fromkeys(kind for hint in (Index, *CHUNKS.values()) for kind in classes(hint))
    for table in (PageTable, SharedTable):
        kinds.pop(table, None)
    body = [_class_text(kind) for kind in kinds]
    body += [
        f"export type {name.title()}Chunk = {_typed(hint)};\n"
        f"export const read{name.title()}Chunk: Reader<{name.title()}Chunk> = {_reader(hint)};\n"
        for name, hint in CHUNKS.items()
    ]
    body.append(_meanings())
    text = "\n".join(body)
    used = [name for name in _READERS if f" {name}" in text or f"({name}" in text]
    head = _HEAD.replace("IMPORTS", ", ".join(["type Reader", *used]))
    return f"{head}\n{text}"


if __name__ == "__main__":
    _PLACE.write_text(contract_text(), "utf-8")
