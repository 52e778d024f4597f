"""Private names inside torch, and the hooks that replace or read such names.

The names themselves are in `private_names`. A missing one disables what needs it, nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Builds the replacement of a function or other object from the original.
Replacement = Callable[[Any], Any]

_MISSING = object()


@dataclass(frozen=True)
class TorchName:
    """A name inside torch: a module, and a dotted path from there; empty for the module itself."""

    module: str
    attribute: str

    def __str__(self) -> str:
        return f"{self.module}.{self.attribute}".removesuffix(".")

    def find(self) -> object | None:
        """Resolve the name in the modules imported so far; None if it does not exist."""
        found: Any = sys.modules.get(self.module, _MISSING)
        for part in filter(None, self.attribute.split(".")):
            found = _lookup(found, part)
        return None if found is _MISSING else found


def _lookup(owner: Any, name: str) -> Any:
    """Return an attribute that the owner, or a class it derives from, defines itself.

    Plain `getattr` would find `__init__` and `__call__` on every class, by way of `object`.
    """
    if not isinstance(owner, type):
        return getattr(owner, name, _MISSING)
    for base in owner.__mro__:
        if base is not object and name in vars(base):
            return vars(base)[name]
    return _MISSING


@dataclass(frozen=True)
class Wrap:
    """A name to replace, and the function that wraps the original."""

    name: TorchName
    replacement: Replacement


@dataclass(frozen=True)
class Hook:
    """A view: what it records, and the torch names that it requires."""

    stage: str
    records: str
    wraps: tuple[Wrap, ...]
    reads: tuple[TorchName, ...] = ()
    # Some builds of torch lack these names by design; that is not reported as missing.
    is_optional: bool = False

    @property
    def names(self) -> tuple[TorchName, ...]:
        return (*(wrap.name for wrap in self.wraps), *self.reads)
