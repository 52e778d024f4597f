"""Which lines of a kernel's later forms go back to which line of its source.

Triton leaves the source line on everything that it makes: as `loc(#loc7)` in TTIR and TTGIR, as
`!dbg !7` in LLVM IR, as `.loc` in PTX and AMDGCN. What was inlined belongs to the line of the
kernel that called it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator

Links = dict[int, list[int]]

_DIRECTIVE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_PLACE = re.compile(r"([^\s/\[\]@:]+\.py):(\d+)")
_LOCATION_USE = re.compile(r"loc\((#loc\d*)\)\s*$")
_LOCATION = re.compile(r"^(#loc\d*) = loc\((.*)\)\s*$")
_FILE_PLACE = re.compile(r'^"([^"]*)":(\d+):\d+$')
_REFERENCE = re.compile(r"#loc\d*")
_DEBUG_USE = re.compile(r"!dbg !(\d+)")
_DEBUG = re.compile(r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+),.*?(?:inlinedAt: !(\d+))?\)")
# References that lead to references: deeper than any that a compiler makes.
_DEEPEST = 64


def source_links(form: str, text: str) -> Links:
    """Lines of the kernel's file → lines of the text. Empty where the form holds no lines."""
    reader = _READERS.get(form)
    found: defaultdict[int, list[int]] = defaultdict(list)
    for source, line in reader(text.splitlines()) if reader else ():
        found[source].append(line)
    return dict(found)


def _from_directives(lines: list[str]) -> Iterator[tuple[int, int]]:
    """`.loc 1 24 28  // kernel.py:24:28`: what follows belongs to it, until the next."""
    source: int | None = None
    for number, line in enumerate(lines, start=1):
        directive = _DIRECTIVE.match(line)
        if directive:
            # The outermost place of the chain that was inlined is the last; the kernel's own.
            chain = _PLACE.findall(line)
            is_own = directive[1] == "1" or bool(chain)
            source = int(chain[-1][1]) if chain else int(directive[2]) if is_own else None
        elif "func_end" in line or ".section" in line:
            source = None  # What follows is debug information, not code.
        elif source is not None and line.strip() and not line.strip().startswith(("//", "$", ";")):
            yield source, number


def _from_locations(lines: list[str]) -> Iterator[tuple[int, int]]:
    table = {match[1]: match[2] for line in lines if (match := _LOCATION.match(line))}
    for number, line in enumerate(lines, start=1):
        used = _LOCATION_USE.search(line)
        if used and not line.startswith("#"):
            source = _resolve(table, used[1])
            if source is not None:
                yield source, number


def _resolve(table: dict[str, str], name: str) -> int | None:
    """The line of a location; for a call, that of the caller."""
    for _ in range(_DEEPEST):
        text = table.get(name, "")
        place = _FILE_PLACE.match(text)
        if place:
            return int(place[2])
        references = _REFERENCE.findall(text)
        if not references:
            return None
        name = references[-1] if text.startswith("callsite") else references[0]
    return None


def _from_debug_info(lines: list[str]) -> Iterator[tuple[int, int]]:
    table = {match[1]: (int(match[2]), match[3]) for line in lines if (match := _DEBUG.match(line))}
    for number, line in enumerate(lines, start=1):
        used = _DEBUG_USE.search(line)
        name = used[1] if used else None
        for _ in range(_DEEPEST):
            if name is None or name not in table:
                break
            source, name = table[name]
            if name is None:
                yield source, number


_READERS: dict[str, Callable[[list[str]], Iterator[tuple[int, int]]]] = {
    "ttir": _from_locations,
    "ttgir": _from_locations,
    "llir": _from_debug_info,
    "ptx": _from_directives,
    "amdgcn": _from_directives,
}
