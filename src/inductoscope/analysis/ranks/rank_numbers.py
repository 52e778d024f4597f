"""Numbers of ranks as people write them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_MOST_RANGES = 6
# In the name of a file or folder, the last one first; then what torchrun --log-dir makes, and the
# number at the end of a name such as out.3.
_IN_NAME = re.compile(
    r"(?<![a-z])rank[_\-.=]?(\d{1,7})(?!.*(?<![a-z])rank[_\-.=]?\d)", re.IGNORECASE
)
_OF_TORCHRUN = re.compile(r"attempt_\d+/(\d{1,7})/std(?:out|err)\.log")
_AT_END = re.compile(r"\.(\d{1,7})(?:\.(?:gz|bz2|xz))?$")
# What torch writes itself is the rank; a launcher may only know the rank on its host.
_IN_LABEL = (re.compile(r"rank ?(\d{1,7})"), re.compile(r"default(\d{1,7})|^(\d{1,7})(?=:|$)"))


def ranks_text(ranks: Iterable[int]) -> str:
    """'rank 3', 'ranks 0-2, 7'; of many, the first ones."""
    numbers = sorted(set(ranks))
    word = "rank" if len(numbers) == 1 else "ranks"
    return f"{word} {numbers_text(numbers)}"


def numbers_text(ranks: Iterable[int]) -> str:
    """'0-2, 7'; of many, the first ones, and how many more there are."""
    ranges = _ranges(sorted(set(ranks)))
    shown = [f"{first}" if first == last else f"{first}-{last}" for first, last in ranges]
    if len(shown) <= _MOST_RANGES:
        return ", ".join(shown)
    left = sum(last - first + 1 for first, last in ranges[_MOST_RANGES:])
    return f"{', '.join(shown[:_MOST_RANGES])} and {left} more"


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def rank_of_path(path: str) -> int | None:
    """The rank that a file's name tells; None if it tells none."""
    place = path.replace("\\", "/")
    for pattern in (_IN_NAME, _OF_TORCHRUN, _AT_END):
        found = pattern.search(place)
        if found:
            return int(found[1])
    return None


def rank_of_label(label: str) -> int | None:
    """The rank in what torch or a launcher writes before a line: '[rank3]:', 'rank 3', '3:'."""
    for pattern in _IN_LABEL:
        found = pattern.search(label)
        if found:
            return int(next(filter(None, found.groups())))
    return None
