"""Whether two runs of the program failed the same way."""

from __future__ import annotations

import re

from inductoscope.doctor.outside.program import ProgramRun
from inductoscope.processes.last_words import last_lines


def fails_alike(one: ProgramRun, other: ProgramRun) -> bool:
    """Whether two runs failed with the same exit code and the same last words."""
    if one.ending.exit_code != other.ending.exit_code:
        return False
    return _last_words(one) == _last_words(other)


def _last_words(run: ProgramRun) -> str:
    """The last line that was printed, without numbers, which may differ."""
    lines = last_lines(run.output, 1)
    return re.sub(r"[-+.\d]+(e[-+]?\d+)?", "#", lines[-1]) if lines else ""
