"""Chunks of the whole run: autotuning, guards, packages, the timeline."""

from __future__ import annotations

from collections.abc import Mapping

from inductoscope.model.entities import Compile, Recording
from inductoscope.model.timeline import Timeline
from inductoscope.model.tuning import TimedChoice
from inductoscope.packages.guards import InputGuard
from inductoscope.packages.wrapper_text import PackagedConstant, WrapperText
from inductoscope.views.page.chunk_contract import (
    Guards,
    PackageConstant,
    PackageContents,
    PackageInput,
    PackageSize,
    PageChoice,
    PageLane,
    PageSpan,
    PageTimeline,
    Search,
)


def autotune(recording: Recording) -> tuple[Search, ...]:
    """Every autotuning search, with its choices."""
    return tuple(
        Search(
            graph=graph.key,
            operation=search.operation,
            inputs=search.inputs,
            winner=search.winner,
            choices=tuple(map(_choice, search.choices)),
        )
        for graph in recording.graphs
        for search in graph.autotunes
    )


def _choice(choice: TimedChoice) -> PageChoice:
    is_timed = choice.milliseconds is not None and not choice.failed
    return PageChoice(
        name=choice.name,
        description=choice.description,
        milliseconds=choice.milliseconds,
        state="timed" if is_timed else choice.state,
        error=choice.error,
    )


def guards(recording: Recording, compile_: Compile) -> Guards:
    """The guards of one compile, one per line."""
    rows = recording.data(compile_.guards)
    lines = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            code = row.get("code")
            text = "; ".join(map(str, code)) if isinstance(code, list) else str(code or "")
            head = " ".join(str(row.get(name) or "") for name in ("kind", "source")).strip()
            lines.append(f"{head}: {text}" if text else head)
    return Guards("\n".join(lines))


def package(found: WrapperText) -> PackageContents:
    """What a package accepts and holds, the largest constants first."""
    held = sorted(found.constants, key=lambda constant: -constant.bytes)
    return PackageContents(
        inputs=tuple(map(_input, found.guards.inputs)),
        sizes=tuple(PackageSize(s.name, s.expression) for s in found.guards.symbols),
        constants=tuple(map(_constant, held)),
    )


def _input(guard: InputGuard) -> PackageInput:
    return PackageInput(
        name=guard.name,
        dtype=guard.dtype,
        sizes=guard.size_texts,
        strides=guard.stride_texts,
        device=guard.device,
        aligned_to=guard.aligned_to,
    )


def _constant(constant: PackagedConstant) -> PackageConstant:
    return PackageConstant(
        name=constant.name,
        kind=constant.kind,
        dtype=constant.dtype,
        shape=f"[{', '.join(map(str, constant.shape))}]",
        device=constant.device,
        bytes=constant.bytes,
        written_by=", ".join(constant.written_by),
    )


def timeline_view(found: Timeline, numbers: Mapping[tuple[str, str], int]) -> PageTimeline:
    """Where the time went, by process and stage."""
    return PageTimeline(
        lanes=tuple(PageLane(lane.name, lane.kind) for lane in found.lanes),
        spans=tuple(
            PageSpan(
                lane=span.lane,
                start=round(span.start, 6),
                seconds=round(span.seconds, 6),
                depth=span.depth,
                stage=span.stage,
                label=span.label if span.finished else f"{span.label} (not finished)",
                graph=numbers.get((found.lanes[span.lane].process, span.graph)),
            )
            for span in found.spans
        ),
    )
