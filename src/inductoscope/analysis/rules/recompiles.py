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
from collections.abc import Iterator, Sequence

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.guard_reasons import FailedGuard, read_guard

# torch gives up at 8; a frame that is halfway there will not settle by itself.
LIMIT = 4
_SHOWN = 4


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per frame; ranks that recompile the same are one."""
    frames: dict[tuple[str, str, str], list[Compile]] = {}
    for compile_ in recording.compiles:
        if compile_.recompile is not None:
            key = (compile_.process, compile_.function, compile_.place)
            frames.setdefault(key, []).append(compile_)
    same: dict[tuple[object, ...], list[list[Compile]]] = {}
    for (_, function, place), compiles in frames.items():
        if limit_of(compiles) or len(compiles) >= LIMIT:
            key_of_all = (function, place, limit_of(compiles), tuple(_reasons(compiles)))
            same.setdefault(key_of_all, []).append(compiles)
    for every in same.values():
        yield _finding(every[0], processes=len(every))


def limit_of(compiles: Sequence[Compile]) -> str:
    """The limit of torch that they reached; empty if none."""
    return next((c.recompile.limit for c in compiles if c.recompile and c.recompile.limit), "")


def main_guard(compiles: Sequence[Compile]) -> FailedGuard:
    """The guard that failed most often: the one to do something about."""
    guards = [read_guard(reason) for reason in _reasons(compiles)]
    often = Counter(guard.about for guard in guards)
    return max(guards, key=lambda guard: often[guard.about], default=FailedGuard(""))


def _reasons(compiles: Sequence[Compile]) -> Iterator[str]:
    """The guard that failed first, of each recompile."""
    for compile_ in compiles:
        for reason in compile_.recompile.reasons[:1] if compile_.recompile else ():
            if reason.strip():
                yield reason


def _finding(compiles: list[Compile], processes: int) -> Finding:
    guards = [read_guard(reason) for reason in _reasons(compiles)]
    limit = limit_of(compiles)
    main = main_guard(compiles)
    ended = (
        f"; it reached torch's {limit}, so inputs that no compiled version fits now run in eager "
        "(the others still run compiled)"
        if limit
        else ""
    )
    first = compiles[0]
    name = f"The rest of {first.resumed}" if first.resumed else first.function
    where = f" in each of {processes} processes" if processes > 1 else ""
    return Finding(
        rule="recompiles",
        title=f"{name} was recompiled {len(compiles)} times{where}{ended}",
        is_problem=True,
        confidence="proven",
        evidence=tuple(_evidence(guards)),
        advice=main.what_to_change,
        stage=stages.DYNAMO,
        source=str(main.stack[-1]) if main.stack else first.place,
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
