"""A program that ended with an exit code other than 0.

What it finds: a program that says that it failed, and raised no exception that nobody caught.

Why it matters: nothing else in the recording says why.

Example: `sys.exit(3)`; a launcher that catches exceptions, prints them and exits with 1.

What to do: read what the program printed.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording


def check(recording: Recording) -> Iterator[Finding]:
    """At most one note."""
    ending = recording.ending
    if ending is None or not ending.exit_code or ending.signal is not None or ending.by_tool:
        return
    if any(not error.thread for process in recording.processes for error in process.uncaught):
        return
    if any(not error.swallowed for c in recording.compiles for error in c.errors):
        return
    recorded = [process for process in recording.processes if process.torch]
    yield Finding(
        rule="exit_code",
        title=f"The program ended with exit code {ending.exit_code}"
        + ("; no uncaught exception is recorded" if recorded else ""),
        is_problem=False,
        confidence="proven",
        evidence=(
            "the exit status of the command",
            *(
                f"process {p.pid} did not end as Python does: os._exit, or C code"
                for p in recorded
                if not p.ended and p.pid == recording.command_pid
            ),
        ),
        advice="Read what the program printed: it chose this exit code itself."
        if recorded
        else "It ended before it imported torch, so only what it printed says why.",
    )
