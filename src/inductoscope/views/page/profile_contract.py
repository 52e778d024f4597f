"""What the page knows of run time: modules with their kernels, and what was measured of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, TypeVar

from inductoscope.model.as_json import json_keys

Row = TypeVar("Row")


@dataclass(frozen=True, eq=False, repr=False)
class PageTable(Generic[Row]):
    """Many rows of one class: the keys are written once, not in every row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]

    @classmethod
    def of(cls, kind: type[Row], rows: Iterable[Row]) -> PageTable[Row]:
        """A table of rows that all have this class."""
        keys = json_keys(kind)  # type: ignore[arg-type]
        return cls(keys, tuple(tuple(vars(row).values()) for row in rows))


@dataclass(frozen=True, eq=False, repr=False)
class SharedTable(Generic[Row]):
    """Very many rows whose values recur: each value of a column is written once, and read once."""

    columns: tuple[str, ...]
    # Per column, its different values.
    values: tuple[tuple[Any, ...], ...]
    # Per column, for each row the place of its value.
    places: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, kind: type[Row], rows: Sequence[Row]) -> SharedTable[Row]:
        """A table of rows that all have this class."""
        keys = json_keys(kind)  # type: ignore[arg-type]
        columns = [_shared(map(attrgetter(key), rows)) for key in keys]
        return cls(keys, tuple(values for values, _ in columns), tuple(p for _, p in columns))

    @classmethod
    def joined(cls, kind: type[Row], tables: Sequence[SharedTable[Row]]) -> SharedTable[Row]:
        """The rows of all these tables, one after the other."""
        keys = json_keys(kind)  # type: ignore[arg-type]
        columns = [
            _joined([(table.values[at], table.places[at]) for table in tables])
            for at in range(len(keys))
        ]
        return cls(keys, tuple(values for values, _ in columns), tuple(p for _, p in columns))


Column = tuple[tuple[Any, ...], tuple[int, ...]]


def _joined(columns: Sequence[Column]) -> Column:
    known: dict[Any, int] = {}
    places: list[int] = []
    for values, own in columns:
        now = [known.setdefault(_distinct(value), len(known)) for value in values]
        places += map(now.__getitem__, own)
    return tuple(value for _, value in known), tuple(places)


def _shared(column: Iterable[Any]) -> Column:
    """The different values of a column, and for each row the place of its value."""
    found = list(column)
    kinds = set(map(type, found))
    # Within one type no two values are the same that JSON writes in other ways.
    keys = found if len(kinds) == 1 else list(map(_distinct, found))
    known = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    values = tuple(known) if keys is found else tuple(value for _, value in known)
    return values, tuple(map(known.__getitem__, keys))


def _distinct(value: Any) -> tuple[type, Any]:
    """A key that tells 1 from True and from 1.0, which JSON writes in other ways."""
    return type(value), value


# --- modules --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageModule:
    """A module, or a compiled function above all of its modules. `parent` is a row before it."""

    path: str
    # What it is called inside its parent.
    label: str
    kind: str
    parent: int | None
    # Operations of it and of its parts, in all graphs, and the graphs that have them.
    operations: int
    graphs: tuple[int, ...]
    # The first module beside it that has the same class and the same parts.
    alike: int | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ModuleKernel:
    """A kernel, and the innermost module that holds all that it computes."""

    module: int
    graph: int
    id: str
    name: str
    # In one call of the graph: how often it is called, and what it has to move at least.
    calls: int
    bytes: int | None
    # Of all calls of the graph that were measured, without the first.
    seconds: float | None


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ModuleTree:
    """The model as its author wrote it, and the kernels that it became."""

    modules: PageTable[PageModule]
    kernels: PageTable[ModuleKernel]


# --- the profile ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProfiledKernel:
    """One call of a kernel in a wrapper. `graph` is a position in the index."""

    graph: int | None
    id: str
    name: str
    device: str
    sizes: str
    calls: int
    # Seconds of a call: the median, and the quartiles.
    median: float
    low: float
    high: float
    # Seconds of all calls, and of them those beyond what the machine needs.
    total: float
    lost: float
    bytes: int | None
    flops: int | None
    floor: float | None
    limit: str
    operations: str
    places: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class UsualKernel:
    """A kernel in a usual call of its graph."""

    id: str
    name: str
    start: float
    seconds: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProfiledGraph:
    """The calls of a graph, and one of them that took about as long as most."""

    graph: int | None
    key: str
    function: str
    sizes: str
    device: str
    measured_by: str
    calls: int
    median: float
    low: float
    high: float
    eager: float | None
    slower_than_eager: bool
    usual: float | None
    kernels: PageTable[UsualKernel]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProfiledMachine:
    """What a device can do, in bytes and operations per second."""

    device: str
    name: str
    threads: int
    measured: str
    # Copies beyond the caches, and the fastest ones in them.
    bandwidth: float
    cached_bandwidth: float
    matrix: Mapping[str, float]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PageProfile:
    """What `inductoscope profile` measured."""

    headline: str
    kernels: PageTable[ProfiledKernel]
    graphs: tuple[ProfiledGraph, ...]
    machines: tuple[ProfiledMachine, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ProfileHead:
    """Whether kernels were timed; `chunk` has the times."""

    chunk: str
    kernels: int
    seconds: float
    headline: str


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ModulesHead:
    """Where the tree of modules is."""

    chunk: str
