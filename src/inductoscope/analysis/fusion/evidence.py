"""The values that decided about a pair: index expressions, loops, nodes in between, limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from inductoscope.analysis.fusion.decisions import Consideration
from inductoscope.analysis.fusion.overlaps import common_share
from inductoscope.analysis.fusion.pairs import Moved, Pair
from inductoscope.analysis.fusion.silent import read_loops
from inductoscope.model.entities import Recording
from inductoscope.model.schedule import ScheduledNode

_INDEX = re.compile(r"^(index\d+) = (.*)$", re.MULTILINE)
_RANGES = re.compile(r"^var_ranges = \{(.*)\}$", re.MULTILINE)
_GET = re.compile(r"^\s*(\w+) = self\.get_index\('(\w+)'\)$", re.MULTILINE)
_ACCESS = re.compile(r"^\s*\w+ = ops\.(load|store|store_reduction)\('([^']*)', (\w+)", re.MULTILINE)
_MOST_NAMED = 6


@dataclass(frozen=True)
class Accesses:
    """Where a node reads and writes each buffer, and over which ranges."""

    ranges: str
    places: Mapping[tuple[str, str], tuple[str, ...]]

    def of(self, buffer: str) -> str:
        """How the buffer is used, in a few words; empty if it is not."""
        found = [
            f"{verb} {buffer}[{', '.join(indices)}]"
            for (verb, name), indices in self.places.items()
            if name == buffer
        ]
        return " and ".join(found)


def read_accesses(body: str) -> Accesses:
    """The index expressions of a recorded loop body."""
    ranges = _RANGES.search(body)
    expressions = dict(_INDEX.findall(body))
    taken = {name: expressions.get(index, "?") for name, index in _GET.findall(body)}
    places: dict[tuple[str, str], tuple[str, ...]] = {}
    for operation, buffer, name in _ACCESS.findall(body):
        key = ("reads" if operation == "load" else "writes", buffer)
        index = taken.get(name, "a data-dependent place")
        if index not in places.get(key, ()):
            places[key] = (*places.get(key, ()), index)
    return Accesses(ranges[1] if ranges else "", places)


@dataclass(frozen=True)
class Evidence:
    """Finds the deciding values in one graph's schedule."""

    recording: Recording
    nodes: Mapping[str, ScheduledNode]
    # The final group of each node.
    finals: Mapping[str, str]
    settings: Mapping[str, Any]
    _bodies: dict[str, Accesses] = field(default_factory=dict, repr=False)

    def values(self, pair: Pair, last: Consideration) -> tuple[str, ...]:
        """What the last decision about a pair depended on."""
        return tuple(dict.fromkeys(self._values(pair, last)))

    def _values(self, pair: Pair, last: Consideration) -> Iterator[str]:
        text = last.torch
        if text.startswith(("no shared data", "memory deps", "score_fusion")):
            yield from self._accesses(pair)
        if text.startswith("score_fusion") and last.shared_bytes is not None:
            limit = self.settings.get("score_fusion_memory_threshold", "not recorded")
            yield f"shared {last.shared_bytes} bytes, score_fusion_memory_threshold {limit}"
        if text.startswith("exceeds max fusion"):
            yield from self._sizes(pair)
        if text.startswith(("intermediate nodes", "will create cycle")):
            yield from self._between(pair)
        if text.startswith(("numel", "nodes numel", "tiling", "invalid", "Nodes are too far")):
            yield from self._loops(pair)

    def accesses(self, name: str) -> Accesses:
        """How a node uses its buffers."""
        if name not in self._bodies:
            self._bodies[name] = read_accesses(self.recording.payload(self.nodes[name].body))
        return self._bodies[name]

    def in_common(self, pair: Pair) -> tuple[Moved, ...]:
        """What two nodes really both read, as far as their index expressions show."""
        return tuple(self._in_common(pair, moved) for moved in pair.moved)

    def _in_common(self, pair: Pair, moved: Moved) -> Moved:
        first, second = self.accesses(pair.first), self.accesses(pair.second)
        key = ("reads", moved.buffer)
        if moved.read_bytes is None or key not in first.places or key not in second.places:
            return moved
        share = common_share(first.places[key], first.ranges, second.places[key], second.ranges)
        if share is None:
            return moved
        return replace(moved, read_bytes=int(moved.read_bytes * share), certain=True)

    def _accesses(self, pair: Pair) -> Iterator[str]:
        for moved in pair.moved:
            for name in (pair.first, pair.second):
                found = self.accesses(name)
                if used := found.of(moved.buffer):
                    yield f"{name} {used} over {{{found.ranges}}}"

    def _loops(self, pair: Pair) -> Iterator[str]:
        for name in (pair.first, pair.second):
            loops = read_loops(self.nodes[name].group)
            group = str(loops) if loops else self.nodes[name].group
            if group:
                yield f"{name} loops over {group}"

    def _sizes(self, pair: Pair) -> Iterator[str]:
        counts = [
            sum(1 for final in self.finals.values() if final == self.finals[name])
            for name in (pair.first, pair.second)
        ]
        limit = self.settings.get("max_fusion_size", "not recorded")
        yield f"{counts[0]} + {counts[1]} operations at the end, max_fusion_size {limit}"

    def _between(self, pair: Pair) -> Iterator[str]:
        start, end = self.finals[pair.first], self.finals[pair.second]
        bit, before = self._ancestors
        names = [
            name
            for name, final in self.finals.items()
            if final not in (start, end)
            and before.get(end, 0) & bit.get(final, 0)
            and before.get(final, 0) & bit.get(start, 0)
        ]
        if names:
            shown = ", ".join(self.label(name) for name in names[:_MOST_NAMED])
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            yield f"between them: {shown}{more}"

    def label(self, name: str) -> str:
        """A node with the last operation in it: 'op5 (addmm)'."""
        node = self.nodes[name]
        return f"{name} ({node.origins[-1]})" if node.origins else name

    @cached_property
    def _ancestors(self) -> tuple[dict[str, int], dict[str, int]]:
        """The bit of every final group, and the bits of the groups that must run before it."""
        writers = {b.name: node.name for node in self.nodes.values() for b in node.buffers}
        direct: dict[str, set[str]] = {}
        for name, node in self.nodes.items():
            final = self.finals[name]
            needs = {self.finals[writers[read]] for read in node.reads if read in writers}
            direct.setdefault(final, set()).update(needs - {final})
        bit = {name: 1 << number for number, name in enumerate(direct)}
        return bit, _closure(direct, bit)


def _closure(direct: Mapping[str, Iterable[str]], bit: Mapping[str, int]) -> dict[str, int]:
    """Everything that comes before each name, as bits.

    A damaged graph may contain a cycle: a name in progress counts with what it has so far.
    """
    found: dict[str, int] = {}
    for start in direct:
        waiting = [start]
        while waiting:
            name = waiting[-1]
            needs = [need for need in direct[name] if need in bit]
            missing = [need for need in needs if need not in found]
            if name not in found and missing:
                found[name] = 0  # In progress.
                waiting += missing
                continue
            waiting.pop()
            for need in needs:
                found[name] = found.get(name, 0) | bit[need] | found.get(need, 0)
            found.setdefault(name, 0)
    return found
