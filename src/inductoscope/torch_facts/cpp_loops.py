"""The loops of a generated C++ kernel, parsed from its source: trip counts, nesting, threads.

Inductor writes one brace per line and indents by block, so a block ends where its indentation does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_LOOP = re.compile(r"for\(int64_t (?P<name>\w+)=(?P<start>.+?); (?P=name)<(?P<end>.+?); "
                   r"(?P=name)\+=(?P<step>.+)\)")  # fmt: skip
_NUMBER = re.compile(r"(?:static_cast<int64_t>\()?(\d+)L?\)?")
_VECTOR = "at::vec::"
_THREADS = "#pragma omp parallel"


@dataclass(frozen=True)
class CppLoop:
    """A loop of a kernel. Bounds and step are None if they are only known at run time."""

    variable: str
    start: int | None
    end: int | None
    step: int | None
    # The lines of the body outside inner loops.
    own_lines: tuple[str, ...]
    inner: tuple[CppLoop, ...]

    @property
    def elements(self) -> int:
        """The number of elements the loop covers; 1 if unknown."""
        return max(self.end - (self.start or 0), 1) if self.end is not None else 1

    @property
    def is_vectorized(self) -> bool:
        """Whether the loop processes several elements per iteration."""
        return self.step != 1 or any(_VECTOR in line for line in self.own_lines)

    @property
    def starts_threads(self) -> bool:
        """Whether each iteration opens a parallel region, which starts and joins threads."""
        return any(line.startswith(_THREADS) for line in self.own_lines)


@dataclass(frozen=True)
class LoopNest:
    """An innermost loop, with the loops around it, outermost first."""

    outer: tuple[CppLoop, ...]
    loop: CppLoop

    @property
    def elements(self) -> int:
        """The number of elements the nest covers; a loop of unknown length counts as 1."""
        product = self.loop.elements
        for loop in self.outer:
            product *= loop.elements
        return product

    @property
    def is_vectorized(self) -> bool:
        """Whether any loop of the nest processes several elements per iteration."""
        return any(loop.is_vectorized for loop in (*self.outer, self.loop))


def read_loops(source: str) -> tuple[CppLoop, ...]:
    return tuple(_read(source.splitlines())[0])


def loop_nests(source: str) -> Iterator[LoopNest]:
    """Yield every innermost loop of a kernel, with the loops around it."""
    for loop in read_loops(source):
        yield from _nests((), loop)


def _nests(outer: tuple[CppLoop, ...], loop: CppLoop) -> Iterator[LoopNest]:
    if not loop.inner:
        yield LoopNest(outer, loop)
    for inner in loop.inner:
        yield from _nests((*outer, loop), inner)


def _read(lines: list[str]) -> tuple[list[CppLoop], list[str]]:
    """Return the outermost loops among these lines, and the lines outside of them."""
    loops, rest, place = [], [], 0
    while place < len(lines):
        line = lines[place].strip()
        place += 1
        head = _LOOP.fullmatch(line)
        if head is not None:
            body = _block(lines, place)
            place += len(body)
            inner, own = _read(body)
            start, end, step = (_number(head[part]) for part in ("start", "end", "step"))
            loops.append(CppLoop(head["name"], start, end, step, tuple(own), tuple(inner)))
        elif line:
            rest.append(line)
    return loops, rest


def _block(lines: list[str], begin: int) -> list[str]:
    """Return the lines of the block that starts at `begin`, braces included."""
    first = lines[begin] if begin < len(lines) else ""
    closing = " " * (len(first) - len(first.lstrip())) + "}"
    for place in range(begin, len(lines)):
        if lines[place].rstrip() == closing:
            return lines[begin : place + 1]
    return lines[begin:]


def _number(text: str) -> int | None:
    found = _NUMBER.fullmatch(text.strip())
    return int(found[1]) if found else None
