"""Objects of a recording whose fields are made safe one by one, when they are first asked for.

A schedule has thousands of nodes with twenty fields each, and most readers look at three of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

Kind = TypeVar("Kind")
Reader = Callable[[Any], Any]

_RECORDED = "_recorded"


class _LazyField:
    """Makes one field of what was recorded, and leaves it in the object for the next who asks."""

    def __init__(self, name: str, key: str, read: Reader) -> None:
        self._name, self._key, self._read = name, key, read

    def __get__(self, made: Any, owner: type[Any]) -> Any:
        if made is None:
            raise AttributeError(self._name)  # As a dataclass without defaults has it.
        own = made.__dict__
        value = own[self._name] = self._read(own[_RECORDED].get(self._key))
        return value


def lazily(
    kind: type[Kind], /, **fields: tuple[str, Reader]
) -> Callable[[Mapping[str, Any]], Kind]:
    """How objects of a frozen dataclass are made of what was recorded.

    `fields`: for each field the key in what was recorded, and what reads the value there: None
    where there is none.
    """
    for name, (key, read) in fields.items():
        setattr(kind, name, _LazyField(name, key, read))

    def make(recorded: Mapping[str, Any]) -> Kind:
        made = object.__new__(kind)
        made.__dict__[_RECORDED] = recorded
        return made

    return make
