"""Graphs that came from a cache.

What it finds: compiles answered by the AOTAutograd cache or the FX graph cache.

Why it matters: nothing was lowered, scheduled or generated, so there is nothing to show of those
stages.

Example: the second run of an unchanged script.

What to do: `inductoscope run --fresh` compiles again in a private cache and leaves yours alone.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Recording
from inductoscope.wording import count_of


def check(recording: Recording) -> Iterator[Finding]:
    """One note for all hits."""
    hits = [
        (compile_.id, lookup.cache)
        for compile_ in recording.compiles
        for lookup in compile_.caches
        if lookup.outcome == "hit"
    ]
    if not hits:
        return
    compiles = list(dict.fromkeys(compile_id for compile_id, _ in hits))
    caches = ", ".join(dict.fromkeys(cache for _, cache in hits))
    fresh = recording.manifest.get("fresh") is True
    yield Finding(
        rule="cache_hits",
        title=f"{count_of(len(compiles), 'compile')} came from a cache: inner stages did not run",
        is_problem=False,
        confidence="proven",
        evidence=(f"compile {', '.join(compiles)}: hit in the {caches} cache",),
        advice="The same graph was compiled earlier in this run: look at that compile."
        if fresh
        else "To see the stages: inductoscope run --fresh SCRIPT. It compiles in a private "
        "cache and leaves yours alone.",
    )
