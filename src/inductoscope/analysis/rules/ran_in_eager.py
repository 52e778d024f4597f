"""Functions that Dynamo gave up on, so that they ran in eager.

What it finds: every function under torch.compile that Dynamo left to eager, with the line and the
reason torch gives.

Why it matters: nothing of the function itself is compiled, and torch says so only in its logs.

Example: a graph break inside a `for` loop, from which Dynamo cannot resume.

What to do: remove what breaks the graph, or compile the body of the loop instead of the loop.
`fullgraph=True` turns this into an error.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.analysis.rules.graph_breaks import (
    broken_lines,
    finding_on,
    first_hint,
    short_reason,
)
from inductoscope.model.entities import Recording

# torch's name for a break that it cannot resume from, because the frame is inside a loop.
_IN_LOOP = "graph break in loop"


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per function and line."""
    for line in broken_lines(recording):
        if not line.in_eager:
            continue
        in_loop = _IN_LOOP in line.reason
        why = "its graph breaks inside a loop" if in_loop else "Dynamo gave up on it"
        reason = short_reason(line.reason)
        instead = " Or compile the body of the loop instead of the loop." if in_loop else ""
        yield finding_on(
            line,
            "ran_in_eager",
            f"Your function {line.in_eager} ran in eager{line.times}, because {why}: {reason}",
            f"{first_hint(line.reason)}{instead}",
        )
