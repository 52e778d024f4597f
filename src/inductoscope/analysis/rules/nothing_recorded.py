"""A run that compiled nothing.

What it finds: a command that never imported torch while recorded, or imported it and compiled
nothing.

Why it matters: an empty recording would otherwise look like a clean one.

Example: a script without torch.compile; Python started with -I or -E, which disables recording; a
block of `inductoscope.record()` around functions that were compiled before it.

What to do: check that the script reaches torch.compile.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.recording.values import whole
from inductoscope.wording import count_of


def check(recording: Recording) -> Iterator[Finding]:
    """At most one note."""
    if recording.compiles:
        return
    if recording.ending is None and not recording.manifest.get("inside"):
        yield _not_yet()
        return
    before = whole(recording.manifest.get("compiled_before"))
    if before:
        yield _compiled_before(before)
        return
    if any(process.torch for process in recording.processes):
        title = "torch was imported, but nothing was compiled"
        advice = "The script never called a function made by torch.compile."
    else:
        title = "No process of the command imported torch"
        advice = "If one should have: Python's options -I, -E and -S prevent recording."
    yield Finding(
        rule="nothing_recorded",
        title=title,
        is_problem=False,
        confidence="proven",
        evidence=("no process recorded a compile",),
        advice=advice,
    )


def _compiled_before(before: int) -> Finding:
    return Finding(
        rule="nothing_recorded",
        title="Nothing was compiled in the recorded block: "
        f"{count_of(before, 'function')} had been compiled before the recording began",
        is_problem=False,
        confidence="proven",
        evidence=("Dynamo keeps what it has compiled, and compiles it once",),
        advice="To record the compile, call torch._dynamo.reset() before the block.",
    )


def _not_yet() -> Finding:
    return Finding(
        rule="nothing_recorded",
        title="Nothing was compiled so far, and the recording has no end",
        is_problem=False,
        confidence="unknown",
        evidence=("the exit of the command is not recorded",),
        advice="The program is still running, or it was killed together with inductoscope.",
    )
