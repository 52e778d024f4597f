"""A view that is off with the installed torch.

What it finds: hooks that are off because a private torch name they need is gone.

Why it matters: that part of the recording is empty although the stage ran.

Example: a new version of torch renamed a function.

What to do: `inductoscope env` lists every name; a newer inductoscope may know the new one.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording


def check(recording: Recording) -> Iterator[Finding]:
    """One note per view, however many processes it was off in."""
    views = dict.fromkeys(view for process in recording.processes for view in process.views_off)
    for view in views:
        yield Finding(
            rule="view_off",
            title=f"Not recorded: {view}",
            is_problem=False,
            confidence="proven",
            evidence=("the name was missing when torch was imported",),
            advice="'inductoscope env' lists every name. A newer version may know the new one.",
        )
