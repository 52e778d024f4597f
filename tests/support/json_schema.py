"""Holds JSON against the schemas in docs/schemas. Understands what those files use, no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schemas"
_UNDERSTOOD = {
    "$schema", "title", "type", "const", "enum", "anyOf", "properties", "required", "items",
    "additionalProperties",
}  # fmt: skip
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
}


def schema_of(command: str) -> dict[str, Any]:
    """The schema of what a command prints with --json."""
    found: dict[str, Any] = json.loads((SCHEMAS / f"{command}.json").read_text("utf-8"))
    return found


def violations(command: str, data: Any) -> list[str]:
    """Where `data` is not as docs/schemas/COMMAND.json says; empty if it is."""
    return list(_violations(schema_of(command), data, command))


def _violations(schema: dict[str, Any], value: Any, place: str) -> Iterator[str]:
    assert schema.keys() <= _UNDERSTOOD, schema.keys() - _UNDERSTOOD
    if "anyOf" in schema:
        found = [list(_violations(option, value, place)) for option in schema["anyOf"]]
        yield from min(found, key=len)
        return
    if "const" in schema and value != schema["const"]:
        yield f"{place} is {value!r}, not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place} is {value!r}, not one of {schema['enum']}"
    if "type" in schema and not _has_type(value, schema["type"]):
        yield f"{place} is {type(value).__name__}, not {schema['type']}"
    elif isinstance(value, dict):
        yield from _members(schema, value, place)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _violations(schema.get("items", {}), item, f"{place}[{number}]")


def _has_type(value: Any, allowed: str | list[str]) -> bool:
    names = [allowed] if isinstance(allowed, str) else allowed
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, _TYPES[name]) for name in names)


def _members(schema: dict[str, Any], value: dict[str, Any], place: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    yield from (f"{place} lacks {key}" for key in schema.get("required", ()) if key not in value)
    others = schema.get("additionalProperties", {})
    for key, item in value.items():
        if key in properties:
            yield from _violations(properties[key], item, f"{place}.{key}")
        elif others is False:
            yield f"{place} has {key}, which docs/schemas does not describe: add it there"
        else:
            yield from _violations(others, item, f"{place}.{key}")
