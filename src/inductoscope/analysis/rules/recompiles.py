"""Frames that are compiled again and again.

What it finds: a frame of the user's program that was recompiled at least as often as `LIMIT`, or
that reached torch's own limit, after which it runs in eager.

Why it matters: each recompile costs as much as the first compile.

Example: a Python number that changes on every call and is guarded on.

What to do: make what changes a tensor, or mark the size dynamic (`torch._dynamo.mark_dynamic`).
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.vocabulary import stages

# torch gives up at 8; a frame that is halfway there is not going to settle by itself.
LIMIT = 4


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per frame."""
    frames: dict[tuple[str, str, str], list[Compile]] = {}
    for compile_ in recording.compiles:
        if compile_.recompile is not None:
            key = (compile_.process, compile_.function, compile_.place)
            frames.setdefault(key, []).append(compile_)
    for (_, _, place), compiles in frames.items():
        limit = next((c.recompile.limit for c in compiles if c.recompile and c.recompile.limit), "")
        if limit or len(compiles) >= LIMIT:
            yield _finding(place, compiles, limit)


def _finding(place: str, compiles: list[Compile], limit: str) -> Finding:
    reasons = [
        reason.strip().splitlines()[0].partition("  #")[0].strip()
        for compile_ in compiles
        if compile_.recompile
        for reason in compile_.recompile.reasons[:1]
        if reason.strip()
    ]
    ended = f"; torch's {limit} was reached and it runs in eager now" if limit else ""
    first = compiles[0]
    name = f"The rest of {first.resumed}" if first.resumed else first.function
    return Finding(
        rule="recompiles",
        title=f"{name} was recompiled {len(compiles)} times{ended}",
        is_problem=True,
        confidence="proven",
        evidence=tuple(f"guard that failed: {reason}" for reason in dict.fromkeys(reasons)),
        advice="What the guards name changes from call to call. A size: "
        "torch._dynamo.mark_dynamic(tensor, dim) before the call. A number: pass it as a tensor. "
        "Anything else: keep it out of the compiled function.",
        stage=stages.DYNAMO,
        source=place,
        compile=compiles[-1].id,
    )
