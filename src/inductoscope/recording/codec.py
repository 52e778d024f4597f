"""Conversion of dataclasses to JSON and back, for messages between the tool's processes.

Both directions are derived from the fields of the class. Reading tolerates damage: an unknown key
is ignored, a value of the wrong type counts as absent, and an absent value takes the default of its
field. Only a field without a default is required.
"""

from __future__ import annotations

import contextlib
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Convert a value to plain JSON data; types that JSON lacks become strings."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def decode(cls: type[T], data: Any) -> T:
    """Rebuild a dataclass from `encode`'s data; ValueError if a required field is missing."""
    if not isinstance(data, Mapping):
        raise ValueError(f"{cls.__name__} cannot be read from {type(data).__name__}")
    return cls(**dict(_decoded(cls, data, is_strict=True)))


def decode_any(cls: type[T], data: Mapping[str, Any]) -> T:
    """Like `decode`, but read a missing or damaged required field as empty."""
    return cls(**dict(_decoded(cls, data, is_strict=False)))


def _decoded(cls: Any, data: Mapping[str, Any], *, is_strict: bool) -> Iterator[tuple[str, Any]]:
    for name, hint, is_required in _fields(cls):
        try:
            yield name, fitting(hint, data[name])
        except (ValueError, KeyError) as error:
            if is_required and is_strict:
                raise ValueError(f"{cls.__name__} needs a valid {name!r}") from error
            if is_required:
                yield name, _empty(hint)


@cache
def _fields(cls: Any) -> tuple[tuple[str, Any, bool], ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        (one.name, hints[one.name], one.default is MISSING and one.default_factory is MISSING)
        for one in fields(cls)
    )


_EMPTY: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, tuple: (), Mapping: {}}


def _empty(hint: Any) -> Any:
    return _EMPTY.get(typing.get_origin(hint) or hint)


def fitting(hint: Any, value: Any) -> Any:
    """Convert a value to the type of a field; ValueError if it does not fit."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or (origin is typing.Literal and value in arguments):
        return value
    if origin in (typing.Union, types.UnionType):
        return _first_fitting(arguments, value)
    if origin is tuple and arguments[-1] is not ... and isinstance(value, list):
        return tuple(fitting(*pair) for pair in zip(arguments, value, strict=True))
    if origin in (list, tuple) and isinstance(value, list):
        return origin(item for _, item in _all_fitting(arguments[0], enumerate(value)))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {str(key): item for key, item in _all_fitting(arguments[1], value.items())}
    if isinstance(hint, type) and is_dataclass(hint):
        return decode(hint, value)
    if hint is float and type(value) in (int, float):
        return float(value)
    if origin is None and type(value) is hint:
        return value
    raise ValueError(f"{value!r} is not {hint}")


def _first_fitting(hints: Sequence[Any], value: Any) -> Any:
    for hint in hints:
        with contextlib.suppress(ValueError):
            return fitting(hint, value)
    raise ValueError(f"{value!r} is none of {hints}")


def _all_fitting(hint: Any, items: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    """Yield the items whose value fits the type; skip damaged ones."""
    for key, value in items:
        with contextlib.suppress(ValueError):
            yield key, fitting(hint, value)


# --- Dataclasses as JSON: each becomes an object whose keys are its fields ------------------------

# Metadata of a field that JSON omits.
NOT_IN_JSON = {"in_json": False}


def as_json(value: Any) -> dict[str, Any]:
    """Convert one dataclass to a dict; as the `default` of `json.dumps` it handles nested ones."""
    return {name: getattr(value, name) for name in json_keys(type(value))}  # type: ignore[arg-type]


@cache
def json_keys(kind: type[Any]) -> tuple[str, ...]:
    """Return the JSON keys of a dataclass; TypeError if it is not a dataclass."""
    return tuple(one.name for one in fields(kind) if one.metadata.get("in_json", True))
