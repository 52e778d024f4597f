"""docs/models.md: every model, what was found, and what it cost."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from battery.markdown import plain, row
from battery.models.catalogue import FEATURES, Model
from battery.models.trial import COULD_NOT_RUN, ModelResult

_MIB = 1 << 20
# What a clean verdict may cost, in times of a plain compiled run with an empty cache.
CPU_GOAL, MEMORY_GOAL = 2.0, 3.0


def is_right(result: ModelResult) -> bool:
    """Healthy models are clean; faults are named and proven."""
    if result.planted:
        return result.named and result.verified
    return result.verdict == "clean"


def render_text(results: Sequence[ModelResult]) -> str:
    healthy, planted = _split(results)
    examined = [r for r in healthy if r.verdict != COULD_NOT_RUN]
    lines = [f"{sum(map(is_right, examined))} of {len(examined)} healthy models are clean"]
    if len(examined) < len(healthy):
        lines.append(f"{len(healthy) - len(examined)} could not run, even without the doctor")
    if examined:
        lines.append(_costs(examined))
    if planted:
        lines.append(f"{sum(map(is_right, planted))} of {len(planted)} planted: named and proven")
    lines += [f"  {r.name}: {r.verdict} · {r.stage}: {r.summary[:200]}" for r in _misses(results)]
    return "\n".join(lines)


def render_markdown(models: Sequence[Model], results: Sequence[ModelResult], about: str) -> str:
    healthy, planted = _split(results)
    known = {model.name: model for model in models}
    have = f"{len(healthy)} of {len(models)} models have a result; `make models` runs the rest."
    lines = ["# Real models", "", *_INTRODUCTION, "", about]
    lines += ["", have] if len(healthy) < len(models) else []
    lines += ["", "```", render_text(results), "```"]
    lines += [
        line for model in models if model.note for line in ("", f"{model.name}: {model.note}")
    ]
    lines += ["", "## Healthy models", "", *_table(_HEALTHY, [_healthy(r, known) for r in healthy])]
    lines += ["", "## With a planted fault", "", *_table(_PLANTED, [_planted(r) for r in planted])]
    lines += ["", "## What they cover", "", *_table(("use", "models"), _coverage(models)), ""]
    return "\n".join(lines)


_INTRODUCTION = (
    "Written by `make models`. Each script in `battery/models/scripts` is a model with a small",
    "configuration and random weights; nothing is downloaded. It runs once without inductoscope,",
    "compiled, with an empty cache, and once under `inductoscope doctor`, again with an empty one.",
    "*CPU* and *memory* compare the two: seconds of processor time of all processes, and the",
    "largest sum of their memory, where memory shared by forks counts once. All of these models",
    "are healthy, unless a note below says otherwise, so every verdict but `clean` is wrong. For",
    "the second table a fault of the battery is planted in torch, in a stage drawn by the seed,",
    "and shows in what the program prints.",
)
_HEALTHY = (
    "model", "what it does", "nodes", "verdict", "not checked", "seconds", "CPU s (plain)",
    "CPU", "peak MiB (plain)", "memory",
)  # fmt: skip
_PLANTED = (
    "model", "nodes", "fault", "verdict", "named", "proven", "nodes left", "seconds",
)  # fmt: skip


def _healthy(r: ModelResult, known: dict[str, Model]) -> tuple[str, ...]:
    return (
        r.name,
        known[r.name].title if r.name in known else "",
        str(r.nodes),
        f"{r.verdict}, {r.confidence}" if is_right(r) else f"**{r.verdict} · {r.stage}**",
        "; ".join(r.not_checked) or "-",
        f"{r.doctor.seconds:.0f}",
        f"{r.doctor.cpu_seconds:.0f} ({r.plain.cpu_seconds:.0f})",
        f"{r.cpu_ratio:.1f} x",
        f"{r.doctor.peak_bytes / _MIB:.0f} ({r.plain.peak_bytes / _MIB:.0f})",
        f"{r.memory_ratio:.1f} x",
    )


def _planted(r: ModelResult) -> tuple[str, ...]:
    return (
        r.name,
        str(r.nodes),
        r.planted,
        f"{r.verdict} · {r.stage}" if r.named else f"**{r.verdict} · {r.stage}**",
        "yes" if r.named else "no",
        "yes" if r.verified else "no",
        "-" if r.nodes_left is None else str(r.nodes_left),
        f"{r.doctor.seconds:.0f}",
    )


def _coverage(models: Sequence[Model]) -> list[tuple[str, ...]]:
    return [
        (feature, ", ".join(m.name for m in models if feature in m.features))
        for feature in FEATURES
    ]


def _costs(healthy: Sequence[ModelResult]) -> str:
    cpu = [r.cpu_ratio for r in healthy]
    memory = [r.memory_ratio for r in healthy]
    return (
        f"CPU: median {statistics.median(cpu):.1f} x, at most {max(cpu):.1f} x, "
        f"{sum(r > CPU_GOAL for r in cpu)} above {CPU_GOAL:.0f} x; "
        f"memory: median {statistics.median(memory):.1f} x, at most {max(memory):.1f} x, "
        f"{sum(r > MEMORY_GOAL for r in memory)} above {MEMORY_GOAL:.0f} x"
    )


def _split(results: Sequence[ModelResult]) -> tuple[list[ModelResult], list[ModelResult]]:
    ordered = sorted(results, key=lambda r: r.name)
    return [r for r in ordered if not r.planted], [r for r in ordered if r.planted]


def _misses(results: Sequence[ModelResult]) -> list[ModelResult]:
    return [r for r in results if not is_right(r)]


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [row(header), row(["---"] * len(header))]
    return [*lines, *(row([plain(cell) for cell in cells]) for cells in rows)]
