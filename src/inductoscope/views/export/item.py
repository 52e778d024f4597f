"""A file that an export is made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+|\.{2,}")
_LONGEST = 80


@dataclass(frozen=True)
class Item:
    """Where a file goes, relative to the folder, what it is, and how its text is made."""

    path: str
    what: str
    make: Callable[[], str]
    graph: str = ""
    stage: str = ""


def safe_name(text: str, otherwise: str = "unnamed") -> str:
    """A name for a file or folder that leads nowhere, whatever the recording says."""
    name = _UNSAFE.sub("_", text).lstrip("._-")[:_LONGEST].rstrip("._-")
    return name or otherwise
