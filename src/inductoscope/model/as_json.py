"""Dataclasses as JSON: each becomes an object whose keys are its fields."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

# The metadata of a field that code works with and JSON leaves out.
NOT_IN_JSON = {"in_json": False}


def as_json(value: Any) -> dict[str, Any]:
    """One dataclass as a dictionary. `json.dumps(..., default=as_json)` does the nested ones."""
    return {name: getattr(value, name) for name in json_keys(type(value))}  # type: ignore[arg-type]


@cache
def json_keys(kind: type[Any]) -> tuple[str, ...]:
    """The keys of a dataclass in JSON; TypeError where it is not a dataclass."""
    return tuple(one.name for one in fields(kind) if one.metadata.get("in_json", True))
