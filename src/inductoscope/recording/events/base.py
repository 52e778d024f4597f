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
        for name, value in event.__dict__.items()
        # Types first: torch's values may answer `!=` with anything. One expression, because this
        # runs for every event in the user's program.
        if value is not None
        and value is not (default := defaults[name])
        and (type(value) is not type(default) or value != default)
    }


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
