"""A recording that does not hold everything.

What it finds: a process whose recording stopped (full disk, folder deleted), damaged lines, and
mistakes of the hooks themselves.

Why it matters: what is not in the recording may still have happened.

Example: the disk filled up while the program ran.

What to do: free space, or record to another disk with --output.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.diagnose.finding import Finding
from inductoscope.model.entities import Recording


def check(recording: Recording) -> Iterator[Finding]:
    """One note per process that stopped recording, one for all damage, one per broken hook."""
    for process in recording.processes:
        if process.stopped:
            yield _note(
                f"Process {process.pid} stopped recording: {process.stopped}. The program went on.",
                "the last event of its stream says so",
                "Free space on that disk, or record elsewhere with --output.",
            )
        for error in process.hook_errors:
            yield _note(
                f"A hook of inductoscope failed and recorded nothing: {error}",
                f"process {process.pid} reported it",
                "The program was not disturbed. Please report this.",
            )
    if recording.damage:
        where, what = recording.damage[0]
        yield _note(
            f"{len(recording.damage)} place(s) of the recording cannot be read",
            f"first: {where}: {what}",
            "Normal for a process that was killed while it wrote; the rest is whole.",
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
