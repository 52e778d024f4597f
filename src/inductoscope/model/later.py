"""Parts of the model that are decoded when someone asks for them.

Lowered nodes and pairs of nodes are most of a recording. A summary only counts them, and the page
decodes those of a graph where it makes the rest of that graph: on one of several cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar, overload

from inductoscope.model.fusions import fused, fusion_pair
from inductoscope.model.kernel import reuse
from inductoscope.model.lowering import lowered
from inductoscope.recording.events import code, graphs
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.reading import decoded_events

Item = TypeVar("Item", covariant=True)

# The list of its graph that each is added to, and what it becomes there.
LATER: dict[type[Event], tuple[str, Callable[[Any], Any]]] = {
    graphs.NodeLowered: ("lowered", lowered),
    graphs.PairConsidered: ("pairs", fusion_pair),
    graphs.PairFused: ("fusions", fused),
    code.BufferReused: ("reuses", reuse),
}
LISTS = {event.kind: name for event, (name, _) in LATER.items()}
_BY_LIST = {name: (event.kind, make) for event, (name, make) in LATER.items()}


class DecodedLater(Sequence[Item]):
    """Like the tuple of what a list of a graph becomes, whose items are events or their lines.

    A line that turns out not to be whole counts until then, as a payload does that cannot be read.
    """

    def __init__(self, name: str, graph: str, items: Iterable[Event | bytes]) -> None:
        self._graph = graph
        self._kind, self._make = _BY_LIST[name]
        # What was recorded, and then what became of it: only ever read and set as one, since
        # threads share it.
        self._state: tuple[tuple[Event | bytes, ...], tuple[Item, ...] | None] = tuple(items), None

    @property
    def is_decoded(self) -> bool:
        """Whether someone has looked at it."""
        return self._state[1] is not None

    @property
    def _items(self) -> tuple[Item, ...]:
        recorded, items = self._state
        if items is None:
            lines = [each for each in recorded if isinstance(each, bytes)]
            decoded = decoded_events(self._kind, self._graph, lines)
            events = (next(decoded) if isinstance(each, bytes) else each for each in recorded)
            items = tuple(self._make(event) for event in events if event is not None)
            self._state = (), items
        return items

    def __len__(self) -> int:
        recorded, items = self._state
        return len(recorded if items is None else items)

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items)

    def __reversed__(self) -> Iterator[Item]:
        return reversed(self._items)

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, index: int | slice) -> Item | tuple[Item, ...]:
        return self._items[index]

    def __eq__(self, other: object) -> bool:
        return self._items == (other._items if isinstance(other, DecodedLater) else other)

    def __hash__(self) -> int:
        return hash(self._items)

    def __repr__(self) -> str:
        return repr(self._items)

    def may_mention(self, words: Iterable[str]) -> bool:
        """Whether one of these texts can be in it: seen from the lines, while they are kept."""
        recorded, items = self._state
        if items is not None:
            return True
        sought = [word.encode() for word in words]
        return any(
            not isinstance(each, bytes) or any(word in each for word in sought) for each in recorded
        )


def may_mention(items: Sequence[Any], words: Iterable[str]) -> bool:
    """Whether one of these ASCII texts can be in it; what is decoded already is not searched."""
    return items.may_mention(words) if isinstance(items, DecodedLater) else bool(items)
