"""Text out of the bytes of a log of any origin: torch's header, what launchers put before a line,
colours, and lines without a header that show how a program ended.

torch's C++ code reports a rank that waits for another one, Triton an assembler that a signal
killed, Python an exception that does not end the program, and the C library or shell a crash.
"""

from __future__ import annotations

import re
from functools import lru_cache

# The rest of a longer line is ignored.
LONGEST = 1 << 16
_LONGEST_PREFIX = 200

# Level, time, process, module, line.
HEADER = re.compile(rb"([VIWEC])(\d{4} \d\d:\d\d:\d\d\.\d+) (\d+) ([^\s\]:]+\.py):(\d+)\]")
# What torch may write between a header and the message: the compile id, the name of an artifact.
MARKS = rb"(?: \[([^\]\s]*\d/\d[^\]\s]*)\])?(?: \[__(\w+)\])? ?"
# A record of TORCH_TRACE begins with its key.
KEY = rb'\{"(\w+)": '
# The groups of a header, the marks, and the key if the line is a record.
TORCH_LINE = re.compile(HEADER.pattern + MARKS + rb"(?:" + KEY + rb")?")

# The prefix of a job system: a time, a stream, and the name of a rank or container.
_CLOCK = rb"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_TIME = (
    rb"(?:\[? *(?:\d{4}[-/]\d\d[-/]\d\d[T ]" + _CLOCK + rb"(?:Z|[+-]\d\d:?\d\d)?"
    rb"|[A-Z][a-z]{2} [ \d]\d " + _CLOCK + rb"|" + _CLOCK + rb"|\d+\.\d{3,9})\]?[ \t])"
)
_STREAM = rb"(?:std(?:out|err) [FP] )?"
_SURE_NAME = rb"\[[\w./-]+\]:? ?"
_NAME = (
    rb"|\[\d+,\d+\](?:<\w+>)?: ?|\d{1,6}: ?|[\w./-]+ *\| ?|\([\w .=,:/-]+\) ?"
    rb"|[\w.-]+ [\w./-]+\[\d+\]: "
)
# Before text that is known to be a program's line, more forms count as a name.
_ANY_NAME = rb"\[[\w .:/=-]{1,60}\]:? ?|[A-Za-z][\w.-]*: ?"
# torch's C++ code writes its own header.
_NO_NAME = rb"(?!" + _TIME + rb"|\[?[IWEF]\d{4} \d\d:)"
_MARK = rb"[\xef\xbb\xbf\xff\xfe]*"
_PREFIX = _TIME + rb"?" + _STREAM + rb"((?:" + _NO_NAME + rb"(?:%s))*)" + _TIME + rb"?"
_SURE_LABEL = re.compile(_MARK + _PREFIX % (_SURE_NAME + _NAME))
_LABEL = re.compile(_MARK + rb" *" + _PREFIX % (_ANY_NAME + _NAME))
_COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\n]*\x07")


def clean(data: bytes) -> bytes:
    """Remove color codes and NULs from bytes; line ends keep their places."""
    if b"\x1b" in data:
        data = _COLOUR.sub(b"", data)
    return data.replace(b"\0", b"") if b"\0" in data else data


@lru_cache(maxsize=4096)
def label_of(prefix: bytes) -> str:
    """Return the rank or container in a launcher's prefix, without timestamps."""
    match = _LABEL.match(prefix)
    return decode(match[1]).strip() if match else ""


def is_prefix(text: bytes) -> bool:
    """Check whether the whole text is a launcher's prefix."""
    return _LABEL.fullmatch(text) is not None


def has_label(line: bytes) -> bool:
    """Check whether a line without a header begins with the label of a rank or container."""
    match = _SURE_LABEL.match(line)
    return match is not None and bool(match[1].strip())


def prefix_of(data: bytes, start: int, place: int) -> bytes | None:
    """Return the text before `place` on its line; None if the line is torch's, or in a record."""
    prefix = data[max(start, place - _LONGEST_PREFIX - 1) : place].rpartition(b"\r")[2]
    too_long = len(prefix) > _LONGEST_PREFIX
    return None if too_long or prefix[:1] == b"\t" or HEADER.search(prefix) else prefix


def text_of_line(data: bytes, start: int) -> str:
    """Return the text from `start` to the end of the line."""
    stop = data.find(b"\n", start, start + LONGEST)
    return decode(data[start : stop if stop >= 0 else start + LONGEST]).rstrip("\r")


def decode(data: bytes) -> str:
    """Decode bytes to text without ever failing."""
    return data.decode("utf-8", "replace")


# --- lines without torch's header -----------------------------------------------------------------

COLLECTIVE = "Watchdog caught collective operation timeout"
ASSEMBLER_KILLED = "`ptxas` failed with error code -"
# The traceback that follows does not end a program.
ASIDE = "Exception ignored in"
CRASHED = ("Fatal Python error: ", "Segmentation fault", "Aborted (core dumped)")
PRINTED = (COLLECTIVE, ASSEMBLER_KILLED, ASIDE, *CRASHED)

_CPP_HEADER = re.compile(rb"[IWEF]\d{4} [\d:.]+ (?:\d+ )?\w+\.cpp:\d+\]")
_SHELL = re.compile(rb"(?:\S+: )*(?:line \d+: )? *\d+ ")


def may_stand_before(head: str, prefix: bytes) -> bool:
    """Check whether the text before a head allows the line to be a genuine log line."""
    if head == COLLECTIVE:
        return _CPP_HEADER.search(prefix) is not None
    by_shell = head in CRASHED and _SHELL.fullmatch(prefix) is not None
    return by_shell or is_prefix(prefix)
