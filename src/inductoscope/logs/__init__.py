"""What torch's own logs say.

Nothing here imports torch: a log file from another machine is read where it lies.
"""

from __future__ import annotations

from inductoscope.logs.answer import Answer, Kind
from inductoscope.logs.applicability import judge
from inductoscope.logs.autotune import AutotuneFold
from inductoscope.logs.choice import Choice, parse_choice
from inductoscope.logs.groups import ChoiceState, Group, Progress
from inductoscope.logs.origin import Origin, Program
from inductoscope.logs.patterns import PATTERNS, LogPattern, PatternCheck, check_pattern
from inductoscope.logs.reading import LogReading, read_logs

__all__ = [
    "PATTERNS",
    "Answer",
    "AutotuneFold",
    "Choice",
    "ChoiceState",
    "Group",
    "Kind",
    "LogPattern",
    "LogReading",
    "Origin",
    "PatternCheck",
    "Program",
    "Progress",
    "check_pattern",
    "judge",
    "parse_choice",
    "read_logs",
]
