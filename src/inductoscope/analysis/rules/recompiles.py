"""Functions that are recompiled again and again.

What it finds: a function of your program that was recompiled at least four times, or that reached
torch's own limit, after which inputs that fit none of its compiled versions run in eager.

Why it matters: each recompile costs as much as the first compile.

Example: a Python number with a guard on it that changes on every call.

What to do: pass what changes as a tensor, or mark the size as dynamic
(`torch._dynamo.mark_dynamic`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.guard_reasons import FailedGuard, read_guard

# torch gives up at 8; a frame that is halfway there will not settle by itself.
LIMIT = 4
_SHOWN = 4


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
    guards = [
        read_guard(reason)
        for compile_ in compiles
        if compile_.recompile
        for reason in compile_.recompile.reasons[:1]
        if reason.strip()
    ]
    # The guard that failed most often is the one to do something about.
    often = Counter(guard.about for guard in guards)
    main = max(guards, key=lambda guard: often[guard.about], default=FailedGuard(""))
    ended = (
        f"; it reached torch's {limit}, so inputs that no compiled version fits now run in eager "
        "(the others still run compiled)"
        if limit
        else ""
    )
    first = compiles[0]
    name = f"The rest of {first.resumed}" if first.resumed else first.function
    return Finding(
        rule="recompiles",
        title=f"{name} was recompiled {len(compiles)} times{ended}",
        is_problem=True,
        confidence="proven",
        evidence=tuple(_evidence(guards)),
        advice=main.what_to_change,
        stage=stages.DYNAMO,
        source=str(main.stack[-1]) if main.stack else place,
        compile=compiles[-1].id,
        stack=(*_callers(compiles), *(str(frame) for frame in main.stack)),
        code=main.stack[-1].code if main.stack else "",
    )


def _callers(compiles: list[Compile]) -> tuple[str, ...]:
    return next((c.recompile.callers for c in compiles if c.recompile), ())


def _evidence(guards: list[FailedGuard]) -> Iterator[str]:
    """Guards on the same thing together: its values are what changes."""
    alike: dict[str, list[FailedGuard]] = {}
    for guard in guards:
        alike.setdefault(guard.about, []).append(guard)
    for same in alike.values():
        values = list(dict.fromkeys(guard.value for guard in same))
        more = "".join(f", {value}" for value in values[1:_SHOWN] if value)
        left_out = ", …" if len(values) > _SHOWN else ""
        times = f" {len(same)} times" if len(same) > 1 else ""
        yield f"guard that failed{times}: {same[0].condition}{more}{left_out}"
