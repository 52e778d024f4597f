"""What a program printed last: its own words, not Python's warnings."""

from __future__ import annotations

import linecache
import os
import re

# As Python prints them; beneath comes the line of the source that warns, where there is one.
_WARNING = re.compile(r"(?P<file>\S.*?):(?P<line>\d+): \w*Warning: ")
# As torch's C++ code and its logs print them.
_TORCH_WARNING = re.compile(r"\[?W\d{4} \d\d:\d\d:\d\d|\[W \S+:\d+\] ")

# The most lines that a warning may have.
_LONGEST = 20


def last_lines(output: str, most: int) -> list[str]:
    """The last lines that are neither empty nor part of a warning; fewer than `most` if few are."""
    lines = [line for line in output.splitlines() if line.strip()]
    kept = []
    number = 0
    while number < len(lines):
        length = _warning_length(lines, number)
        if not length:
            kept.append(lines[number])
        number += length or 1
    return kept[-most:]


def _warning_length(lines: list[str], number: int) -> int:
    """How many lines the warning has that begins there; 0 if none does."""
    if _TORCH_WARNING.match(lines[number]):
        return 1
    warning = _WARNING.match(lines[number])
    if warning is None:
        return 0
    source = _source_line(warning["file"], int(warning["line"]))
    beneath = lines[number + 1 : number + _LONGEST]
    for length, line in enumerate(beneath, start=2):
        if source and line == f"  {source}":
            return length
    return 2 if beneath and re.match(r"  \S", beneath[0]) else 1


def _source_line(path: str, number: int) -> str:
    """Empty if it cannot be read; a pipe that a program names is not waited for."""
    return linecache.getline(path, number).strip() if os.path.isfile(path) else ""
