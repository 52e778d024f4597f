"""Functions that are recompiled again and again.

What it finds: a function of your program that was recompiled at least four times, or that reached
torch's own limit, after which it runs in eager.

Why it matters: each recompile costs as much as the first compile.

Example: a Python number with a guard on it that changes on every call.

What to do: pass what changes as a tensor, or mark the size as dynamic
(`torch._dynamo.mark_dynamic`).
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.vocabulary import stages

# torch gives up at 8; a frame that is halfway there will not settle by itself.
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
    ended = f"; it reached torch's {limit} and now runs in eager" if limit else ""
    first = compiles[0]
    name = f"The rest of {first.resumed}" if first.resumed else first.function
    return Finding(
        rule="recompiles",
        title=f"{name} was recompiled {len(compiles)} times{ended}",
        is_problem=True,
        confidence="proven",
        evidence=tuple(f"guard that failed: {reason}" for reason in dict.fromkeys(reasons)),
        advice="The value in the guard changes from call to call. If it is a size, call "
        "torch._dynamo.mark_dynamic(tensor, dim) first. If it is a number, pass it as a tensor. "
        "Keep anything else out of the compiled function.",
        stage=stages.DYNAMO,
        source=place,
        compile=compiles[-1].id,
    )
