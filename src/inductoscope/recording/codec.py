"""Dataclasses to JSON and back: what processes of the tool hand each other.

Both directions are derived from the fields of the class. Reading tolerates damage: an unknown key
is ignored, a value of the wrong type counts as absent, and an absent value takes the default of its
field. Only a field without a default is required.
"""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def encode(value: Any) -> Any:
    """The value as JSON holds it; what JSON has no word for becomes text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def decode(cls: type[T], data: Any) -> T:
    """The dataclass that `encode` made data of; ValueError if a required field is missing."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{cls.__name__} cannot be read from {type(data).__name__}")
    found: dict[str, Any] = {}
    hints = _hints(typing.cast(Any, cls))
    for field in fields(cls):  # type: ignore[arg-type]
        try:
            found[field.name] = _read(hints[field.name], data[field.name])
        except (ValueError, KeyError) as error:
            if _is_required(field):
                raise ValueError(f"{cls.__name__} needs a valid {field.name!r}") from error
    return cls(**found)


@functools.cache
def _hints(cls: Any) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


def _read(hint: Any, value: Any) -> Any:
    """The value as a field of this type holds it; ValueError if it does not fit."""
    if hint is Any:
        return value
    if typing.get_origin(hint) is typing.Literal and value in typing.get_args(hint):
        return value
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _read_either(arguments, value)
    if origin in (list, tuple) and isinstance(value, list):
        return origin(_fitting(arguments[0], value))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {str(key): _read(arguments[1], item) for key, item in value.items()}
    if isinstance(hint, type) and is_dataclass(hint):
        return decode(hint, value)
    if hint is float and type(value) is int:
        return float(value)
    if origin is None and type(value) is hint:
        return value
    raise ValueError(f"{value!r} is not {hint}")


def _read_either(hints: Sequence[Any], value: Any) -> Any:
    for hint in hints:
        try:
            return _read(hint, value)
        except ValueError:
            continue
    raise ValueError(f"{value!r} is none of {hints}")


def _fitting(hint: Any, values: Sequence[Any]) -> list[Any]:
    """The values that fit; damaged ones are left out."""
    found = []
    for value in values:
        try:
            found.append(_read(hint, value))
        except ValueError:
            continue
    return found


# --- Dataclasses as JSON: each becomes an object whose keys are its fields ------------------------

# The metadata of a field that code works with and JSON leaves out.
NOT_IN_JSON = {"in_json": False}


def as_json(value: Any) -> dict[str, Any]:
    """One dataclass as a dictionary. `json.dumps(..., default=as_json)` does the nested ones."""
    return {name: getattr(value, name) for name in json_keys(type(value))}  # type: ignore[arg-type]


@cache
def json_keys(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a dataclass in JSON; TypeError where it is not a dataclass."""
    return tuple(one.name for one in fields(kind) if one.metadata.get("in_json", True))
