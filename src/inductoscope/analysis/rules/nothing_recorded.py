"""A run in which nothing was compiled.

What it finds: a command that never imported torch under the scope, or imported it and compiled
nothing.

Why it matters: an empty recording would otherwise look like a clean one.

Example: a script without torch.compile; Python started with -I or -E, which ignores the scope.

What to do: check that the script reaches torch.compile.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording


def check(recording: Recording) -> Iterator[Finding]:
    """At most one note."""
    if recording.compiles:
        return
    if recording.ending is None and not recording.manifest.get("inside"):
        yield _not_yet()
        return
    if any(process.torch for process in recording.processes):
        title = "torch was imported, but nothing was compiled"
        advice = "The script never called a function made by torch.compile."
    else:
        title = "No process of the command imported torch"
        advice = "If one should have: Python's options -I, -E and -S keep the scope out."
    yield Finding(
        rule="nothing_recorded",
        title=title,
        is_problem=False,
        confidence="proven",
        evidence=("no stream of the recording says otherwise",),
        advice=advice,
    )


def _not_yet() -> Finding:
    return Finding(
        rule="nothing_recorded",
        title="Nothing was compiled as far as the recording goes, and it has no end",
        is_problem=False,
        confidence="unknown",
        evidence=("the end of the command is not in the recording",),
        advice="The program still runs, or it was killed together with the tool.",
    )
