"""Lines with no header that tell how a program ended: none of torch's Python, so no pattern.

Its C++ part writes on a rank that waits for another one, Triton on an assembler that a signal
ended, Python on an exception that ends no program, and the C library or the shell on a crash.
"""

from __future__ import annotations

import re

from inductoscope.hangs.logs.text import is_prefix

COLLECTIVE = "Watchdog caught collective operation timeout"
ASSEMBLER_KILLED = "`ptxas` failed with error code -"
# The traceback that follows ends no program.
ASIDE = "Exception ignored in"
CRASHED = ("Fatal Python error: ", "Segmentation fault", "Aborted (core dumped)")
PRINTED = (COLLECTIVE, ASSEMBLER_KILLED, ASIDE, *CRASHED)

_CPP_HEADER = re.compile(rb"[IWEF]\d{4} [\d:.]+ (?:\d+ )?\w+\.cpp:\d+\]")
_SHELL = re.compile(rb"(?:\S+: )*(?:line \d+: )? *\d+ ")


def may_stand_before(head: str, prefix: bytes) -> bool:
    """Whether a line with this head is what it seems to be, by what stands before on the line."""
    if head == COLLECTIVE:
        return _CPP_HEADER.search(prefix) is not None
    by_shell = head in CRASHED and _SHELL.fullmatch(prefix) is not None
    return by_shell or is_prefix(prefix)
