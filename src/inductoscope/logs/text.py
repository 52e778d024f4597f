"""Text out of bytes of any origin: headers, names that launchers put before a line, colours."""

from __future__ import annotations

import re
from functools import lru_cache

# No line that we read is longer; the rest of one is not looked at.
LONGEST = 1 << 16

# Level, time, process, module, line.
HEADER = re.compile(rb"([VIWEC])(\d{4} \d\d:\d\d:\d\d\.\d+) (\d+) ([^\s\]:]+\.py):(\d+)\]")

# Put before a line by a job system: a time, a stream, and the name of a rank or container.
_TIME = (
    rb"(?:\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?[ \t]+"
    rb"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d[ \t]+|\d\d:\d\d:\d\d(?:[.,]\d+)?[ \t]+)?"
)
_NAMES = (
    rb"((?:\[[\w./-]+\]:? ?|\[\d+,\d+\](?:<\w+>)?: ?|\d{1,6}: ?|[\w./-]+ *\| ?|\([\w .=,:/-]+\) ?"
    rb"|[\w.-]+ [\w./-]+\[\d+\]: )*)"
)
PREFIX = re.compile(rb"[\xef\xbb\xbf\xff\xfe]*" + _TIME + rb"(?:std(?:out|err) [FP] )?" + _NAMES)
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\n]*\x07")


def clean(data: bytes) -> bytes:
    """The bytes without colours and NULs; line ends stay where they are."""
    if b"\x1b" in data:
        data = _COLOUR.sub(b"", data)
    return data.replace(b"\0", b"") if b"\0" in data else data


@lru_cache(maxsize=4096)
def label_of(prefix: bytes) -> str:
    """The rank or container that a launcher wrote before a line; no times."""
    match = PREFIX.match(prefix)
    return decode(match[1]).strip() if match else ""


def text_of_line(data: bytes, start: int) -> str:
    """From `start` to the end of the line."""
    stop = data.find(b"\n", start, start + LONGEST)
    return decode(data[start : stop if stop >= 0 else start + LONGEST]).rstrip("\r")


def decode(data: bytes) -> str:
    """Text, whatever the bytes are."""
    return data.decode("utf-8", "replace")
