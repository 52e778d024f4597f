"""Lines where Dynamo had to break the graph.

What it finds: every line of your program where Dynamo ended a graph and started another, or gave up
on a frame and left it to eager, with the reason torch gives.

Why it matters: nothing is fused or optimised across a break, and each one costs time on every call.

Example: a `print` in a compiled function, a branch on the value of a tensor.

What to do: torch's own hint is quoted; `fullgraph=True` turns breaks into errors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.vocabulary import stages

_EXPLANATION = re.compile(r"^\s*Explanation: (.+)$", re.MULTILINE)
_HINT = re.compile(r"^\s*Hint: (.+)$", re.MULTILINE)


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per line of the user's program, however often the graph broke there."""
    counted: dict[tuple[str, str], list[str]] = {}
    for compile_ in recording.compiles:
        for item in compile_.breaks:
            counted.setdefault((item.source, item.reason), []).append(compile_.id)
        for error in compile_.errors:
            if error.swallowed and not _is_limit(error.message):
                place = error.source or compile_.place
                counted.setdefault((place, error.message), []).append(compile_.id)
    for (source, reason), compiles in counted.items():
        yield _finding(source, reason, compiles)


def _is_limit(message: str) -> bool:
    return "recompile limit" in message.lower()


def short_reason(text: str) -> str:
    """The sentence in torch's explanation that says why."""
    explanation = _EXPLANATION.search(text)
    if explanation is not None:
        return explanation[1].strip()
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")


def _finding(source: str, reason: str, compiles: list[str]) -> Finding:
    times = f" ({len(compiles)} times)" if len(compiles) > 1 else ""
    hint = _HINT.search(reason)
    advice = f"{hint[1].strip()} " if hint else ""
    return Finding(
        rule="graph_breaks",
        title=f"Graph break{times}: {short_reason(reason)}",
        is_problem=True,
        confidence="proven",
        evidence=(f"reported by Dynamo in compile {', '.join(dict.fromkeys(compiles))}",),
        advice=f"{advice}All hints: 'inductoscope show --stage breaks'.",
        stage=stages.DYNAMO,
        source=source,
        compile=compiles[0],
    )
