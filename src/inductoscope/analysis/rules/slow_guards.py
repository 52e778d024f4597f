"""Guards that take long on every call.

What it finds: a compiled function whose guards take at least 100 microseconds to evaluate, measured
when they were built, and the values that they look at longest.

Why it matters: torch evaluates the guards of a compiled function on every call, before anything is
computed. A function with several compiled versions evaluates those of each until one fits.

Example: a model with thousands of submodules that takes 1 ms to compute.

What to do: Compile a larger part, so that one call does more work. If what the guards look at never
changes after the first calls, `torch.compiler.set_stance(skip_guard_eval_unsafe=True)` evaluates
only those that tell compiled versions apart. Torch calls it unsafe: if something does change,
results are silently wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Recording
from inductoscope.torch_facts import stages

FEWEST_MICROSECONDS = 100.0
# Torch's own words about skip_guard_eval_unsafe.
SKIPPED_GUARDS = (
    "This flag is unsafe [...] If this assumption [that no further recompilations will be "
    "necessary] fails, there is a risk of silently producing incorrect results"
)
_SHOWN = 3


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per function, about the version whose guards take longest."""
    slowest: dict[tuple[str, str], Compile] = {}
    for compile_ in recording.compiles:
        key = compile_.function, compile_.place
        if _microseconds(compile_) > _microseconds(slowest.get(key)):
            slowest[key] = compile_
    for compile_ in slowest.values():
        if _microseconds(compile_) >= FEWEST_MICROSECONDS:
            yield _finding(compile_)


def _microseconds(compile_: Compile | None) -> float:
    return (compile_.guard_microseconds or 0.0) if compile_ is not None else 0.0


def _finding(compile_: Compile) -> Finding:
    values = [f"those on {source}: {took:.0f} µs" for source, took in compile_.costly_guards]
    return Finding(
        rule="slow_guards",
        title=f"{compile_.guard_count} guards of {compile_.function} take "
        f"{_microseconds(compile_):.0f} µs on every call",
        is_problem=False,
        confidence="proven",
        evidence=(
            "measured when they were built, the fastest of several evaluations",
            *values[:_SHOWN],
        ),
        advice="Compile a larger part at once. If what they look at never changes: "
        "torch.compiler.set_stance(skip_guard_eval_unsafe=True) after the first calls. "
        f'Torch warns: "{SKIPPED_GUARDS}."',
        stage=stages.DYNAMO,
        source=compile_.place,
        compile=compile_.id,
    )
