"""LRU cache of objects decoded from a recording's payloads, bounded by payload size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Made = TypeVar("Made")

# Limits in payload characters; each takes several bytes once decoded.
_MOST_MADE = 64_000_000
_MOST_TEXTS, _LONGEST_TEXT = 64_000_000, 20_000


class BoundedStore:
    """A thread-safe LRU cache, bounded by the total number of characters."""

    def __init__(self, most: int) -> None:
        self._most, self._held = most, 0
        self._lock = threading.Lock()
        # The values with their sizes, least recently used first.
        self._entries: dict[Hashable, tuple[Any, int]] = {}

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The cached keys, least recently used first."""
        with self._lock:
            return tuple(self._entries)

    def get(self, key: Hashable) -> Any:
        """Return the cached value and mark it most recently used; None on a cache miss."""
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            self._entries[key] = entry
            return entry[0]

    def put(self, key: Hashable, value: Made, characters: int) -> Made:
        """Insert a value; return the one already present if another thread was faster."""
        if value is None or not 0 < characters <= self._most:
            return value
        with self._lock:
            if key in self._entries:
                found: Made = self._entries[key][0]
                return found
            self._entries[key] = value, characters
            self._held += characters
            while self._held > self._most:
                self._held -= self._entries.pop(next(iter(self._entries)))[1]
        return value


@dataclass(frozen=True)
class Kept:
    """The payload cache of a recording: texts and decoded objects, each bounded in size."""

    made: BoundedStore = field(default_factory=lambda: BoundedStore(_MOST_MADE))
    # Texts of loop bodies and kernels, which are requested often.
    texts: BoundedStore = field(default_factory=lambda: BoundedStore(_MOST_TEXTS))

    def once(self, key: Hashable, make: Callable[[], Made], size: Callable[[], int]) -> Made:
        """Return the value cached under `key`; on a miss, call `make` and charge `size` characters.

        Concurrent threads may each call `make`; all get the same value. A size of 0 means that a
        payload is missing; the result is then not cached, since the payload may appear later.
        """
        found: Made | None = self.made.get(key)
        return self.made.put(key, make(), size()) if found is None else found

    def text(self, digest: str, read: Callable[[str], str | None]) -> str:
        """Return the text of a payload; empty if missing, which is not cached as it may appear
        later.
        """
        found: str | None = self.texts.get(digest)
        if found is not None:
            return found
        text = read(digest) or ""
        if not 0 < len(text) <= _LONGEST_TEXT:
            return text
        return self.texts.put(digest, text, len(text))
