"""LRU cache of texts and of objects decoded from a recording's payloads, bounded by their size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

Made = TypeVar("Made")

# Limits in payload characters; each takes several bytes once decoded.
_MOST = 128_000_000
# Shorter texts are those of loop bodies and kernels, which are requested often.
_LONGEST_TEXT = 20_000


class PayloadCache:
    """A thread-safe LRU cache, bounded by the total number of payload characters."""

    def __init__(self, most: int = _MOST) -> None:
        self._most, self._held = most, 0
        self._lock = threading.Lock()
        # The values with their sizes, least recently used first.
        self._entries: dict[Hashable, tuple[Any, int]] = {}

    @property
    def keys(self) -> tuple[Hashable, ...]:
        with self._lock:
            return tuple(self._entries)

    def once(self, key: Hashable, make: Callable[[], Made], size: Callable[[], int]) -> Made:
        """Return the value cached under `key`; on a miss, call `make` and charge `size` characters.

        Concurrent threads may each call `make`; all get the same value. A size of 0 means that a
        payload is missing; the result is then not cached, since the payload may appear later.
        """
        found: Made | None = self._get(key)
        return self._put(key, make(), size()) if found is None else found

    def text(self, digest: str, read: Callable[[str], str | None]) -> str:
        """Return the text of a payload; empty if missing, which is not cached as it may appear
        later.
        """
        found: str | None = self._get(digest)
        if found is None:
            found = read(digest) or ""
            if len(found) <= _LONGEST_TEXT:
                return self._put(digest, found, len(found))
        return found

    def _get(self, key: Hashable) -> Any:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return None
            self._entries[key] = entry
            return entry[0]

    def _put(self, key: Hashable, value: Made, characters: int) -> Made:
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
