"""Memory, advice and compile time, read for the page. They are untrusted: damage is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from inductoscope.recording.profile_file import ADVICE, COMPILE, MEMORY, stored_profile
from inductoscope.recording.stored_memory import (
    alive_at_peak,
    left_out_at_peak,
    totals_over_time,
)
from inductoscope.recording.values import (
    maybe_real,
    maybe_whole,
    members,
    objects,
    real,
    text,
    texts,
    whole,
)
from inductoscope.views.page.measured_contract import (
    AdvisedChange,
    AdvisedCost,
    AliveBlock,
    MeasuredHead,
    MemoryChange,
    MemoryCourse,
    MemoryPoint,
    MemoryStep,
    PageAdvice,
    PageCosts,
    PageMemory,
    StageCost,
)
from inductoscope.views.page.profile_contract import PageTable

Found = Mapping[str, Any]


class StoredMeasurements:
    """What the modes of `profile` kept in a recording."""

    def __init__(self, folder: Path) -> None:
        self._memory, self._advice, self._costs = (
            stored_profile(folder, kind) for kind in (MEMORY, ADVICE, COMPILE)
        )

    @property
    def memory(self) -> MeasuredHead | None:
        """Steps whose memory was traced."""
        # Without any, the headline says why.
        count = len(objects(self._memory.get("steps")))
        return _head("memory", count, is_kept=bool(self._memory))

    @property
    def advice(self) -> MeasuredHead | None:
        """Changes that were tried; a change that comes with a warning was not."""
        # Without any, there is still what the program costs, or why nothing could be tried.
        count = sum(not trial.get("warning") for trial in _trials(self._advice))
        return _head("advice", count, is_kept=bool(self._advice))

    @property
    def costs(self) -> MeasuredHead | None:
        """Stages whose cost was measured."""
        return _head("costs", len(objects(members(self._costs.get("cold")).get("stages"))))

    @property
    def chunks(self) -> dict[str, Callable[[], Any]]:
        """What was measured, by the name of its chunk."""
        made: dict[str, Callable[[], Any]] = {
            "memory": lambda: memory_chunk(self._memory),
            "advice": lambda: _advice(self._advice),
            "costs": lambda: _costs(self._costs),
        }
        heads = {"memory": self.memory, "advice": self.advice, "costs": self.costs}
        return {name: make for name, make in made.items() if heads[name] is not None}


def _head(chunk: str, count: int, *, is_kept: bool = False) -> MeasuredHead | None:
    return MeasuredHead(chunk=chunk, count=count) if count or is_kept else None


# --- memory ---------------------------------------------------------------------------------------


def memory_chunk(found: Found) -> PageMemory:
    """Every step over time, with what is alive at its peak."""
    return PageMemory(
        headline=text(found.get("headline")),
        steps=tuple(_step(row) for row in objects(found.get("steps"))),
        tried=tuple(_change(row) for row in objects(found.get("alternatives"))),
        notes=texts(found.get("notes")),
    )


def _step(row: Found) -> MemoryStep:
    eager = members(row.get("eager"))
    return MemoryStep(
        function=text(row.get("function")),
        place=text(row.get("place")),
        call=whole(row.get("call")),
        compiled=_course(row),
        eager=_course(eager) if eager else None,
    )


def _course(found: Found) -> MemoryCourse:
    points = (
        MemoryPoint(seconds=seconds, total=total) for seconds, total in totals_over_time(found)
    )
    left_out, left_out_bytes = left_out_at_peak(found)
    return MemoryCourse(
        device=text(found.get("device")),
        seconds=real(found.get("seconds")),
        base=whole(found.get("base_bytes")),
        peak=whole(found.get("peak_bytes")),
        peak_seconds=real(found.get("peak_seconds")),
        unknown=whole(found.get("unknown_bytes")),
        left_out=left_out,
        left_out_bytes=left_out_bytes,
        points=PageTable.of(MemoryPoint, points),
        alive=PageTable.of(AliveBlock, map(_block, alive_at_peak(found))),
    )


def _block(row: Found) -> AliveBlock:
    return AliveBlock(
        bytes=whole(row.get("bytes")),
        kind=text(row.get("kind")),
        name=text(row.get("name")),
        graph=text(row.get("graph")),
        operation=text(row.get("operation")),
        source=text(row.get("source")),
        begin=maybe_real(row.get("begin")),
        end=maybe_real(row.get("end")),
    )


def _change(row: Found) -> MemoryChange:
    time = members(row.get("comparison"))
    return MemoryChange(
        change=text(row.get("change")),
        why=text(row.get("why")),
        peak=maybe_whole(row.get("peak_bytes")),
        ratio=maybe_real(row.get("ratio")),
        time_ratio=maybe_real(time.get("ratio")),
        verdict=text(time.get("verdict")),
        helps=row.get("helps") is True,
        note=text(row.get("note")),
    )


# --- advice ---------------------------------------------------------------------------------------


def _trials(found: Found) -> Iterator[Found]:
    """Those that help first."""
    for name in ("advice", "without_effect"):
        yield from objects(found.get(name))


def _advice(found: Found) -> PageAdvice:
    base = members(found.get("base"))
    return PageAdvice(
        ratio=maybe_real(base.get("ratio_to_eager")),
        how=text(base.get("how")),
        error=text(found.get("error")),
        changes=tuple(_advised(row) for row in _trials(found)),
        costs=tuple(
            AdvisedCost(
                what=text(row.get("what")),
                seconds=real(row.get("seconds")),
                source=text(row.get("source")),
                how=text(row.get("how")),
            )
            for row in objects(found.get("costs"))
        ),
    )


def _advised(row: Found) -> AdvisedChange:
    return AdvisedChange(
        change=text(row.get("change")),
        code=text(row.get("code")),
        why=text(row.get("why")),
        source=text(row.get("source")),
        saved=maybe_real(row.get("seconds_saved")),
        predicted=maybe_real(row.get("seconds_predicted")),
        prediction=text(row.get("prediction")),
        ratio=maybe_real(row.get("ratio")),
        helps=row.get("helps") is True,
        warning=text(row.get("warning")),
        how=text(row.get("how")),
    )


# --- compile time ---------------------------------------------------------------------------------


def _costs(found: Found) -> PageCosts:
    cold, warm = members(found.get("cold")), members(found.get("warm"))
    again = {
        text(row.get("stage")): real(row.get("own_seconds")) for row in objects(warm.get("stages"))
    }
    growth = objects(members(found.get("growth")).get("stages"))
    exponents = {
        text(row.get("stage")): maybe_real(row.get("exponent"))
        for row in growth
        if row.get("known") is True
    }
    stages = (
        StageCost(
            stage=text(row.get("stage")),
            own=real(row.get("own_seconds")),
            total=real(row.get("total_seconds")),
            entered=whole(row.get("entered")),
            warm=again.get(text(row.get("stage")), 0.0) if warm else None,
            exponent=exponents.get(text(row.get("stage"))),
        )
        for row in objects(cold.get("stages"))
    )
    return PageCosts(
        headline=text(found.get("headline")),
        cold=real(cold.get("compile_seconds")),
        warm=maybe_real(warm.get("compile_seconds")),
        stages=tuple(sorted(stages, key=lambda stage: -stage.own)),
        noise=text(found.get("noise")),
    )
