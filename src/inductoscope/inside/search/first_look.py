"""Examines a wrong result: whether it is reproducible, and which kernel and nodes make it.

These questions are independent, so they are answered in parallel. The first look reports the
location as soon as it is known, because the user waits for it. Later, in the smallest graph,
everything is examined closely, including memory.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from inductoscope.doctor.failure import Failure, Location
from inductoscope.inside.search.candidate import Candidate, has_transforms
from inductoscope.inside.search.forks import Work
from inductoscope.inside.search.memory_evidence import MemoryEvidence, evidence_of, memory_work
from inductoscope.inside.search.oracle import Oracle
from inductoscope.inside.search.subgraph import record_values, subgraph
from inductoscope.inside.search.wrong_result_location import (
    SeparateNodes,
    first_place,
    location_of_answer,
    places_to_look,
    separated,
    work_on_decompositions,
    work_on_own_kernels,
)

OnPlace = Callable[[Failure, Location], None]
_Items = dict[str, "Candidate | Work"]

_ITSELF, _OWN_KERNELS, _NODES_APART, _MEMORY = "itself", "own kernels", "nodes apart", "memory"
_PLACES = ("a compile", "what is decomposed", "before Inductor", "custom operators")
_OF_VALUES = ("value", "nan")
# Compiling a larger graph takes longer than examining each of its nodes.
_FEW_NODES = 60


@dataclass(frozen=True)
class Look:
    """The findings of one batch of forks."""

    aspect: str
    failure: Failure | None = None
    location: Location = field(default_factory=Location)
    wrong_alone: tuple[str, ...] = ()
    memory: MemoryEvidence = field(default_factory=MemoryEvidence)


def first_look(candidate: Candidate, failure: Failure, oracle: Oracle, on_place: OnPlace) -> Look:
    """Examine the program's graph, and call `on_place` as soon as the failure is located."""
    large = _look_at_large(candidate, failure, oracle, on_place)
    return large or _look_at(candidate, failure.aspect, oracle, on_place)


def look_closely(candidate: Candidate, failure: Failure, oracle: Oracle) -> Look:
    """Examine a small candidate: its kernels operation by operation, and its memory."""
    items: _Items = {_ITSELF: candidate, **_places(candidate, failure.aspect, closely=True)}
    memory = memory_work(candidate, failure)
    if memory is not None:
        items[_MEMORY] = memory
    seen = dict(_as_known(oracle, items, label=" in full"))
    found = _with_place(Look(failure.aspect), seen)
    return found if memory is None else replace(found, memory=evidence_of(seen[_MEMORY]))


def _look_at(candidate: Candidate, aspect: str, oracle: Oracle, on_place: OnPlace) -> Look:
    """Do all the work of a first look side by side.

    Finding the first wrong kernel of the program, and the operations in it that are wrong on their
    own, needs no compile of the graph; checking the stages before it does.
    """
    look = Look(aspect)
    own = work_on_own_kernels(candidate) if aspect in _OF_VALUES else None
    apart = _nodes_apart(candidate, oracle)
    items: _Items = {_OWN_KERNELS: own} if own is not None else {}
    items |= {_ITSELF: candidate, **_places(candidate, aspect)}
    if apart is not None:
        items[_NODES_APART] = apart.candidate
    seen: dict[str, Any] = {}
    for name, answer in _as_known(oracle, items):
        seen[name] = answer
        if name == _ITSELF and answer is None:
            break  # Other answers are meaningless if the failure is not reproduced.
        if name == _NODES_APART:
            look = replace(look, wrong_alone=tuple(apart.wrong_in(answer)) if apart else ())
        elif seen.keys() >= {_ITSELF, *_PLACES}:
            look = _with_own_kernel(_with_place(look, seen), seen)
            on_place(seen[_ITSELF], look.location)
            if look.location.wrong_alone:
                break  # Separating all nodes could only confirm this.
        elif seen.keys() >= {_ITSELF, _OWN_KERNELS}:
            place = location_of_answer(seen[_OWN_KERNELS])
            if place.is_known:
                on_place(seen[_ITSELF], place)
    return look


def _look_at_large(
    candidate: Candidate, failure: Failure, oracle: Oracle, on_place: OnPlace
) -> Look | None:
    """Examine a large graph without recompiling it, if its suspected nodes fail alone.

    The cause may be a wrong decomposition, or the first wrong kernel of the program's own compiled
    graph. Other stages before kernels are examined in the smallest graph.
    """
    own = work_on_own_kernels(candidate)
    is_plain = not (candidate.guarded or candidate.counts or has_transforms(candidate))
    is_value = failure.aspect in _OF_VALUES
    if own is None or not is_plain or not is_value or candidate.size <= _FEW_NODES:
        return None
    works = [work_on_decompositions(candidate, failure.aspect), own]
    places = [location_of_answer(answer) for answer in oracle.forks.ask_all(works)]
    telling = (place for place in places if place.is_known and (place.suspects or place.of_kernel))
    location = next(telling, None)
    if location is None:
        return None
    on_place(failure, location)
    recorded = record_values(candidate)
    sets = dict.fromkeys(names for names in (location.suspects, location.of_kernel) if names)
    if oracle.first([subgraph(recorded, names) for names in sets], failure) is None:
        return None
    return Look(failure.aspect, failure, location)


def _places(candidate: Candidate, aspect: str, *, closely: bool = False) -> _Items:
    return dict(zip(_PLACES, places_to_look(candidate, aspect, closely=closely), strict=True))


def _as_known(oracle: Oracle, items: _Items, label: str = "") -> Iterator[tuple[str, Any]]:
    for number, answer in oracle.as_known(list(items.values()), label=label):
        yield list(items)[number], answer


def _with_place(look: Look, seen: dict[str, Any]) -> Look:
    location = first_place([seen[name] for name in _PLACES])
    return replace(look, failure=seen[_ITSELF], location=location)


def _with_own_kernel(look: Look, seen: dict[str, Any]) -> Look:
    """Add the operations of the kernel that are wrong on their own, if it is the same kernel."""
    own = location_of_answer(seen[_OWN_KERNELS]) if _OWN_KERNELS in seen else Location()
    if not own.wrong_alone or own.kernel != look.location.kernel:
        return look
    location = replace(look.location, wrong_alone=own.wrong_alone)
    return replace(look, location=location, wrong_alone=own.suspects)


def _nodes_apart(candidate: Candidate, oracle: Oracle) -> SeparateNodes | None:
    """Separate all nodes; None where they cannot be separated, or an earlier call matters."""
    if candidate.counts or has_transforms(candidate) or candidate.earlier is not None:
        return None
    try:
        recorded = record_values(candidate)
        return separated(recorded, recorded.names)
    except Exception:  # The separated nodes are only a hint.
        oracle.mistakes.append(traceback.format_exc()[-3000:])
        return None
