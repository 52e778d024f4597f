"""What torch's own logs say.

Nothing here imports torch: a log file from another machine is read where it lies.
"""

from __future__ import annotations

from inductoscope.logs.patterns import PATTERNS, LogPattern, PatternCheck, check_pattern

__all__ = ["PATTERNS", "LogPattern", "PatternCheck", "check_pattern"]
