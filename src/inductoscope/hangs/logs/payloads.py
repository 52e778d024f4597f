"""Divides a log into records, their payloads, and other lines.

Payloads are most of a trace, and nothing in them is a line of its own. Every line of them begins
with a tab, so it is known without the lines before it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate
from typing import NamedTuple

from inductoscope.hangs.logs.records import RECORD, end_of_payload

# Begins with the one letter that is searched for, which makes it fast.
_LINE = re.compile(rb"\n(?!\t)(?:" + RECORD.pattern + rb"|[^\n]*)")
# So much of a block shows whether payloads fill it.
_SAMPLE = 1 << 16


class Outside(NamedTuple):
    """What is outside payloads: a text of lines up to `end`, and records, each with its end.

    Where payloads are few, the text is the log itself: with payloads, and with every record.
    """

    log: bytes
    text: bytes
    end: int
    place_in_log: Callable[[int], int]
    records: list[tuple[re.Match[bytes], int]]


def outside_payloads(data: bytes, end: int) -> Outside:
    """What is on the lines that begin before `end`."""
    sample = min(end, _SAMPLE)
    if 2 * data.count(b"\n\t", 0, sample) < data.count(b"\n", 0, sample):
        return Outside(data, data, end, lambda place: place, [])
    lines = [_first_line(data, end)] if data[:1] != b"\t" else []
    starts = [-1] * len(lines)
    records: list[tuple[re.Match[bytes], int]] = []
    # The end of the last line begins none: what follows may be its payload.
    following = _LINE.finditer(data, 0, end - data.endswith(b"\n", 0, end))
    next_line = next(following, None)
    while next_line is not None:
        line, next_line = next_line, next(following, None)
        if line.lastindex:
            after = next_line.start() if next_line else end_of_payload(data, line.end())
            records.append((line, after))
        else:
            lines.append(line[0])
            starts.append(line.start())
    text = b"".join(lines)
    before = list(accumulate(map(len, lines), initial=0))

    def place_in_log(place: int) -> int:
        line = bisect_right(before, place) - 1
        return starts[line] + place - before[line]

    return Outside(data, text, len(text), place_in_log, records)


def _first_line(data: bytes, end: int) -> bytes:
    stop = data.find(b"\n", 0, end)
    return b"\n" + data[: stop if stop >= 0 else end]
