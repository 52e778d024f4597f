"""Loop bodies that need no proof: fixed sizes, and indices that are sums of loop variables.

Most bodies are like this. Reading them takes a few searches of the text, where a proof takes a
syntax tree and polynomials: a rule that looks for what is broken passes over them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from inductoscope.model.memory import GraphMemory, Room
from inductoscope.model.schedule import ScheduledNode

# Each begins with plain text, which is found far faster than the beginning of a line.
_RANGES = re.compile(r"var_ranges = \{([^{}\n]*)\}\n")
_LENGTH = re.compile(r"(\w+): ([1-9]\d{0,14})")
_INDEX = re.compile(r"\n(index\d+) = (.+)")
_TERM = re.compile(r"(?:(\d{1,15})\*)?([A-Za-z_]\w*)|(\d{1,15})")
_NAMED = re.compile(r"\n    (\w+) = self\.get_index\('(\w+)'\)(?=\n|$)")
_ACCESS = re.compile(r"ops\.(?:load|store|store_reduction)\('(\w+)', (\w+)[,)]")
# An access, or what makes one at an index that is computed, or only where a mask holds.
_ANY_ACCESS = (
    *("ops.load", "ops.store", "ops.bucketize", "ops.masked", "ops.check_bounds"),
    "set_indirect",
)
_MOST_NAMES = 16


@dataclass(frozen=True)
class PlainBody:
    """How often a body runs, and the largest position that it uses of each buffer."""

    points: int
    largest: Mapping[str, int]


# Several rules look at the bodies of a whole recording, one after the other.
@lru_cache(maxsize=1 << 16)
def read_plain_body(text: str) -> PlainBody | None:
    """What a loop body does with memory; None where that takes more than a look."""
    ranges = _RANGES.findall(text)
    accesses = _ACCESS.findall(text)
    if (
        len(ranges) != 1
        or text.count("def ") != 1
        or sum(map(text.count, _ANY_ACCESS)) != len(accesses)
    ):
        return None
    lengths = {name: int(length) for name, length in _LENGTH.findall(ranges[0])}
    if len(lengths) != ranges[0].count(":"):
        return None
    indices = {name: _largest(sum_, lengths) for name, sum_ in _INDEX.findall(text)}
    named = dict(_NAMED.findall(text))
    largest: dict[str, int] = {}
    for buffer, variable in accesses:
        position = indices.get(named.get(variable, ""))
        if position is None:
            return None
        largest[buffer] = max(position, largest.get(buffer, 0))
    return PlainBody(math.prod(lengths.values()), largest)


def _largest(written: str, lengths: Mapping[str, int]) -> int | None:
    """The value of a sum at the ends of the loops; None where it is no sum of loop variables."""
    total = 0
    for term in written.split(" + "):
        found = _TERM.fullmatch(term)
        if found is None:
            return None
        factor, name, number = found.groups()
        if number is not None:
            total += int(number)
        elif name in lengths:
            total += int(factor or 1) * (lengths[name] - 1)
        else:
            return None
    return total


class PlainBuffers:
    """The buffers of a graph, each looked at once."""

    def __init__(self, memory: GraphMemory) -> None:
        self._memory = memory
        self._elements: dict[str, int] = {}

    def hold(self, text: str) -> bool:
        """Whether a look tells that a loop body stays in them."""
        body = read_plain_body(text)
        return body is not None and all(
            position < self._elements_of(name) for name, position in body.largest.items()
        )

    def _elements_of(self, name: str) -> int:
        if name not in self._elements:
            self._elements[name] = _elements(name, self._memory)
        return self._elements[name]


def _elements(name: str, memory: GraphMemory) -> int:
    """The positions of a buffer; 0 where a look does not tell."""
    room: Room | None = None
    for _ in range(_MOST_NAMES):
        room = memory.rooms.get(name)
        if room is None or not room.same_as:
            break
        name = room.same_as
    if room is None or room.same_as or len(room.size) != len(room.stride):
        return 0
    if not all(text.isdecimal() and len(text) < 16 for text in (*room.size, *room.stride)):
        return 0
    if "0" in room.size:
        return 0
    pairs = zip(map(int, room.size), map(int, room.stride), strict=True)
    return 1 + sum((size - 1) * stride for size, stride in pairs)


def fits_plainly(leaves: Iterable[ScheduledNode], texts: Iterable[str], limit: int) -> bool:
    """Whether a look tells that no index and no count of these loop bodies is beyond a limit."""
    bodies = [read_plain_body(text) for text in texts]
    sizes = [size for leaf in leaves for lengths in leaf.sizes for size in lengths]
    if not all(size.isdecimal() and len(size) < 16 for size in sizes):
        return False
    counts = [math.prod(int(s) for lengths in leaf.sizes for s in lengths) for leaf in leaves]
    return all(
        body is not None and body.points <= limit and max(body.largest.values(), default=0) <= limit
        for body in bodies
    ) and all(count <= limit for count in counts)
