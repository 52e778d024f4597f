"""An exception in a thread or a child process, which the program survived.

What it finds: an exception that nobody caught and that ended a thread, or a child process of a
program that ended well or was killed by a signal; and your line.

Why it matters: the program goes on without what the thread or the child was for.

Example: a loader thread that cannot read a file; the program ends well, with data missing.

What to do: catch the exception there, or make the program fail with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.program_failed import failures_of, findings_of, was_survived
from inductoscope.model.entities import Recording


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per exception.

    What an interactive tool printed in the program's own main thread is not one: it was shown.
    """
    survived = [one for one in failures_of(recording) if was_survived(recording, one)]
    parts = [failure for failure in survived if failure.ended_part]
    return findings_of(recording, parts, rule="part_failed")
