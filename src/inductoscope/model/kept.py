"""What was made of the payloads of a recording, kept for the next who asks for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

Made = TypeVar("Made")

# Of a graph, some megabytes each: the schedules, the graphs and the memory of sixty graphs.
_MOST_MADE = 256
_MOST_TEXTS, _LONGEST_TEXT = 50_000, 20_000


@dataclass(frozen=True)
class Kept:
    """Limited in number, so that a recording of any size can be read."""

    # The latest last.
    made: dict[Hashable, Any] = field(default_factory=dict)
    # Loop bodies and kernels, for which many ask.
    texts: dict[str, str] = field(default_factory=dict)

    def once(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` makes, made once for all who ask for the same key one after the other."""
        found: Made = self.made.pop(key) if key in self.made else make()
        self.made[key] = found
        if len(self.made) > _MOST_MADE:
            del self.made[next(iter(self.made))]
        return found

    def text(self, digest: str, read: Callable[[str], str | None]) -> str:
        """The text under a digest; empty where it is missing, which it need not be for ever."""
        if digest not in self.texts:
            text = read(digest) or ""
            if not 0 < len(text) <= _LONGEST_TEXT or len(self.texts) >= _MOST_TEXTS:
                return text
            self.texts[digest] = text
        return self.texts[digest]
