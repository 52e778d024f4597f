"""A recording with gaps.

What it finds: a process that stopped recording (full disk, deleted folder) or had to drop events,
damaged lines, events that only a newer version knows, and hooks that failed.

Why it matters: what is not in the recording may still have happened.

Example: the disk filled up while the program ran.

What to do: free space, or record to another disk with --output.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Process, Recording
from inductoscope.wording import count_of


def check(recording: Recording) -> Iterator[Finding]:
    """One note per process and reason, one for all damage, one for all that is unknown."""
    for process in recording.processes:
        yield from _left_out(process)
    if recording.damage:
        where, what = recording.damage[0]
        yield _note(
            f"{count_of(len(recording.damage), 'place')} in the recording cannot be read",
            f"first: {where}: {what}",
            "This is normal for a process that was killed while writing; the rest is intact.",
        )
    if recording.unknown_events:
        kinds = ", ".join(f"{kind} {count}" for kind, count in recording.unknown_events.items())
        number = sum(recording.unknown_events.values())
        yield _note(
            f"This version does not know {count_of(number, 'event')}",
            f"kinds: {kinds}",
            "A newer inductoscope wrote them. Upgrade: pip install --upgrade inductoscope.",
        )


def _left_out(process: Process) -> Iterator[Finding]:
    if process.stopped:
        yield _note(
            f"Process {process.pid} stopped recording: {process.stopped}. The program continued.",
            "according to the last event of its stream",
            "Free space on that disk, or record elsewhere with --output.",
        )
    if process.dropped:
        yield _note(
            f"Process {process.pid} could not write {count_of(process.dropped, 'event')}",
            "the process counted them; it had run out of file descriptors",
            "Raise the limit on open files: ulimit -n.",
        )
    for error in process.hook_errors:
        yield _note(
            f"A hook of inductoscope failed and recorded nothing: {error}",
            f"reported by process {process.pid}",
            "The program was not affected. Please report this.",
        )


def _note(title: str, evidence: str, advice: str) -> Finding:
    return Finding(
        rule="incomplete_recording",
        title=title,
        is_problem=False,
        confidence="proven",
        evidence=(evidence,),
        advice=advice,
    )
