"""One file of an export."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+|\.{2,}")
_LONGEST = 80


@dataclass(frozen=True)
class Item:
    """A file's path in the folder, what it is, and a function that makes its text."""

    path: str
    what: str
    make: Callable[[], str]
    graph: str = ""
    stage: str = ""


def safe_name(text: str, otherwise: str = "unnamed") -> str:
    """A name for a file or folder, without path separators or other unsafe characters."""
    name = _UNSAFE.sub("_", text).lstrip("._-")[:_LONGEST].rstrip("._-")
    return name or otherwise
