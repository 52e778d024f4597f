"""What all events have in common, and how one is written.

Imported in the user's process at start-up: the standard library only.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, ClassVar


class Event:
    """Something that happened in a process of the recorded program.

    The first sentence of a subclass's docstring says when it is written. Every default is what its
    type reads as where the field is absent (see `reading`), so that leaving it out loses nothing.
    """

    # Subclasses are frozen dataclasses.
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]
    kind: ClassVar[str]
    # Whether a process that writes it is getting anywhere. Rounds of fusion may go on for ever.
    is_progress: ClassVar[bool] = True


_REQUIRED = object()


def written_fields(event: Event) -> dict[str, Any]:
    """The fields as they go to disk: None and what equals the field's default are left out."""
    defaults = _defaults(type(event))  # type: ignore[arg-type]  # A class is hashable.
    return {
        name: value
        for name, value in vars(event).items()
        if value is not None and not _is_same(value, defaults[name])
    }


def _is_same(value: Any, default: Any) -> bool:
    # Types first: what torch hands over may answer `==` with anything.
    return value is default or (type(value) is type(default) and bool(value == default))


@cache
def _defaults(event: type[Event]) -> dict[str, Any]:
    return {
        item.name: item.default_factory()
        if item.default_factory is not MISSING
        else _REQUIRED
        if item.default is MISSING
        else item.default
        for item in fields(event)
    }
