"""Lines without torch's header that show how a program ended.

torch's C++ code reports a rank that waits for another one, Triton an assembler that a signal
killed, Python an exception that does not end the program, and the C library or shell a crash.
"""

from __future__ import annotations

import re

from inductoscope.hangs.logs.text import is_prefix

COLLECTIVE = "Watchdog caught collective operation timeout"
ASSEMBLER_KILLED = "`ptxas` failed with error code -"
# The traceback that follows does not end a program.
ASIDE = "Exception ignored in"
CRASHED = ("Fatal Python error: ", "Segmentation fault", "Aborted (core dumped)")
PRINTED = (COLLECTIVE, ASSEMBLER_KILLED, ASIDE, *CRASHED)

_CPP_HEADER = re.compile(rb"[IWEF]\d{4} [\d:.]+ (?:\d+ )?\w+\.cpp:\d+\]")
_SHELL = re.compile(rb"(?:\S+: )*(?:line \d+: )? *\d+ ")


def may_stand_before(head: str, prefix: bytes) -> bool:
    """Whether the text before this head allows that the line is what it seems to be."""
    if head == COLLECTIVE:
        return _CPP_HEADER.search(prefix) is not None
    by_shell = head in CRASHED and _SHELL.fullmatch(prefix) is not None
    return by_shell or is_prefix(prefix)
