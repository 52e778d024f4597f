"""The part of a wrapper, in Python or C++, that calls kernels: which line calls which."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.model.entities import InductorGraph, Recording
from inductoscope.recording.events import Kernel
from inductoscope.torch_facts.package_wrappers import (
    KernelCall,
    called_names,
    calls_by_line,
    outputs_in_cpp,
    run_function,
    scheduler_names,
)
from inductoscope.torch_facts.python_wrappers import outputs_in_python, start_of_run

_WORD = re.compile(r"[\w.]+")
_PLAIN_WORD = re.compile(r"\w+")
_MOST_LOOKED_AT = 32


@dataclass(frozen=True)
class WrapperLines:
    """The lines of a wrapper that run the graph, with the kernels that each one calls."""

    language: str
    # The number of the first line in the wrapper, from 1.
    first_line: int
    lines: tuple[str, ...]
    # The kernels by index into `lines`.
    kernels: Mapping[int, tuple[Kernel, ...]] = field(default_factory=dict)


def wrapper_lines(text: str, kernels: Sequence[Kernel]) -> WrapperLines:
    run = run_function(text)
    if run is not None:
        lines = tuple(run.text.splitlines())
        found = dict(_called_in_cpp(run.text, lines, kernels))
        return WrapperLines("cpp", run.first_line, lines, found)
    start = start_of_run(text)
    lines = tuple(text[start:].splitlines())
    first = text.count("\n", 0, start) + 1
    return WrapperLines("python", first, lines, dict(_called_in_python(lines, kernels)))


def kernels_by_line(recording: Recording, graph: InductorGraph) -> dict[int, Kernel]:
    """Map line numbers of a graph's wrapper to the kernel that each line calls."""
    found = wrapper_lines(recording.payload(graph.wrapper), graph.kernels)
    return {found.first_line + at: kernels[0] for at, kernels in found.kernels.items()}


def kernels_by_call(
    recording: Recording, graph: InductorGraph
) -> dict[tuple[str, int], tuple[int, Kernel]]:
    """Map calls in a C++ wrapper to their line number and kernel.

    The key is the called name, and the number of earlier calls of the same name.
    """
    text = recording.payload(graph.wrapper)
    run = run_function(text)
    if run is None:
        return {}
    lines = wrapper_lines(text, graph.kernels)
    seen: Counter[str] = Counter()
    found = {}
    for at, call in calls_by_line(run.text):
        if at in lines.kernels:
            found[call.name, seen[call.name]] = lines.first_line + at, lines.kernels[at][0]
        seen[call.name] += 1
    return found


def _called_in_python(
    lines: Sequence[str], kernels: Sequence[Kernel]
) -> Iterator[tuple[int, tuple[Kernel, ...]]]:
    named: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        named.setdefault(kernel.name, []).append(kernel)
    places: dict[str, list[tuple[int, set[str]]]] = {}
    for at, line in enumerate(lines):
        words = set(_WORD.findall(line))
        for name in {word.removesuffix(".run") for word in words} & named.keys():
            places.setdefault(name, []).append((at, words))
    found: dict[int, tuple[Kernel, ...]] = {}
    for name, calls in places.items():
        for at, kernel in _each_with_its_call(calls, named[name]):
            found[at] = (*found.get(at, ()), kernel)
    yield from found.items()


def _each_with_its_call(
    calls: Sequence[tuple[int, set[str]]], kernels: Sequence[Kernel]
) -> Iterator[tuple[int, Kernel]]:
    """Match calls to kernels: by order if none is missing, else by the buffers they write."""
    if len(calls) == len(kernels):
        yield from ((at, kernel) for (at, _), kernel in zip(calls, kernels, strict=True))
        return
    for at, words in calls:
        yield from ((at, k) for k in kernels if len(kernels) == 1 or words & set(k.writes))


def _called_in_cpp(
    body: str, lines: Sequence[str], kernels: Sequence[Kernel]
) -> Iterator[tuple[int, tuple[Kernel, ...]]]:
    """Match calls in C++ to kernels, in node order; library calls have other names in C++."""
    places = _Places(kernels)
    begin = 0
    for at, call in calls_by_line(body):
        words = {word.removesuffix("_handle") for word in _PLAIN_WORD.findall(lines[at])}
        place = places.of_call(call, words, begin)
        if place is not None:
            begin = place + 1
            yield at, (kernels[place],)


class _Places:
    def __init__(self, kernels: Sequence[Kernel]) -> None:
        self._kernels = kernels
        # The positions of generated kernels by name, and of operators by name and by written
        # buffer.
        self._generated: dict[str, list[int]] = {}
        self._named: dict[str, list[int]] = {}
        self._writers: dict[str, list[int]] = {}
        for place, kernel in enumerate(kernels):
            if kernel.language != "extern":
                self._generated.setdefault(kernel.name, []).append(place)
                continue
            for name in scheduler_names(kernel.name):
                self._named.setdefault(name, []).append(place)
            for name in dict.fromkeys(kernel.writes):
                self._writers.setdefault(name, []).append(place)

    def of_call(self, call: KernelCall, words: set[str], begin: int) -> int | None:
        """Return the position of the kernel called, from `begin` on; None if ambiguous."""
        if call.kind == "kernel":
            return next(iter(_from(begin, self._generated, call.name)), None)
        # A custom operator called by index leaves only its buffers on the line.
        known = self._named if call.name else self._writers
        names = called_names(call.name) if call.name else words
        found = sorted({place for name in names for place in _from(begin, known, name)})
        if call.kind == "operator" and call.name:
            return found[0] if found else None  # The call's buffers are on other lines.
        best = max(found, key=lambda place: self._agreement(place, words), default=None)
        return best if best is not None and self._agreement(best, words) else None

    def _agreement(self, place: int, words: set[str]) -> int:
        """Score how well a line's buffers match a kernel; written buffers count double."""
        kernel = self._kernels[place]
        return 2 * (not words.isdisjoint(kernel.writes)) + (not words.isdisjoint(kernel.reads))


def _from(begin: int, known: Mapping[str, Sequence[int]], name: str) -> Sequence[int]:
    """Return the next few positions of a name: a hostile text may repeat one call endlessly."""
    places = known.get(name, ())
    start = bisect_left(places, begin)
    return places[start : start + _MOST_LOOKED_AT]


def output_buffers(found: WrapperLines) -> Mapping[int, str]:
    """Map output positions to the buffers returned; constants and None are omitted."""
    return (outputs_in_cpp if found.language == "cpp" else outputs_in_python)(found.lines)
