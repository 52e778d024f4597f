"""Stored results of `profile`, converted for the page. They are untrusted: damage is dropped.

Keys of the stored profiles are those of the page's classes, unless a function here says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inductoscope.model.entities import InductorGraph, Recording
from inductoscope.model.wrapper_lines import kernels_by_line
from inductoscope.recording.codec import decode_any
from inductoscope.recording.events import Kernel
from inductoscope.recording.profile_file import (
    ADVICE,
    COMPILE,
    KERNELS,
    MEMORY,
    alive_at_peak,
    left_out_at_peak,
    stored_profile,
    totals_over_time,
)
from inductoscope.recording.values import maybe_real, members, objects, real, text, texts, whole
from inductoscope.views.page.contract import (
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
    PageProfile,
    PageTable,
    ProfiledGraph,
    ProfiledKernel,
    ProfiledMachine,
    ProfileHead,
    StageCost,
    UsualKernel,
)
from inductoscope.views.page.graph_chunks import kernel_id

Found = Mapping[str, Any]


class StoredMeasurements:
    """Results of `profile --memory`, `--advise` and `--compile` that a recording holds."""

    def __init__(self, folder: Path) -> None:
        memory, advice, costs = (stored_profile(folder, kind) for kind in (MEMORY, ADVICE, COMPILE))
        # By the name of the chunk; chunks are built on demand.
        self.heads: dict[str, MeasuredHead] = {}
        self.chunks: dict[str, Callable[[], Any]] = {}
        if memory:  # If no step was traced, the headline says why.
            self._add("memory", len(objects(memory.get("steps"))), lambda: _memory(memory))
        if advice:  # If no change was tried, the chunk still has the overhead, or the reason.
            tried = sum(not trial.get("warning") for trial in _trials(advice))
            self._add("advice", tried, lambda: _advice(advice))
        if stages := objects(members(costs.get("cold")).get("stages")):
            self._add("costs", len(stages), lambda: _costs(costs))

    def _add(self, chunk: str, count: int, make: Callable[[], Any]) -> None:
        self.heads[chunk], self.chunks[chunk] = MeasuredHead(chunk=chunk, count=count), make


# --- memory ---------------------------------------------------------------------------------------


def _memory(found: Found) -> PageMemory:
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
    points = [MemoryPoint(seconds=at, total=total) for at, total in totals_over_time(found)]
    alive = [decode_any(AliveBlock, block) for block in alive_at_peak(found)]
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
        alive=PageTable.of(AliveBlock, alive),
    )


def _change(row: Found) -> MemoryChange:
    time = members(row.get("comparison"))
    named = {"peak": row.get("peak_bytes"), "time_ratio": time.get("ratio")}
    return decode_any(MemoryChange, {**row, **named, "verdict": time.get("verdict")})


# --- advice ---------------------------------------------------------------------------------------


def _trials(found: Found) -> Iterator[Found]:
    for name in ("advice", "without_effect"):
        yield from objects(found.get(name))


def _advice(found: Found) -> PageAdvice:
    base = members(found.get("base"))
    return PageAdvice(
        ratio=maybe_real(base.get("ratio_to_eager")),
        how=text(base.get("how")),
        error=text(found.get("error")),
        changes=tuple(_advised(row) for row in _trials(found)),
        costs=tuple(decode_any(AdvisedCost, row) for row in objects(found.get("costs"))),
    )


def _advised(row: Found) -> AdvisedChange:
    named = {"saved": row.get("seconds_saved"), "predicted": row.get("seconds_predicted")}
    return decode_any(AdvisedChange, {**row, **named})


# --- compile time ---------------------------------------------------------------------------------


def _costs(found: Found) -> PageCosts:
    cold, warm = members(found.get("cold")), members(found.get("warm"))
    again = {
        text(row.get("stage")): real(row.get("own_seconds")) for row in objects(warm.get("stages"))
    }
    exponents = {
        text(row.get("stage")): maybe_real(row.get("exponent"))
        for row in objects(members(found.get("growth")).get("stages"))
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


# --- run time -------------------------------------------------------------------------------------


class StoredProfile:
    """The times of kernels in a recording, joined with its graphs."""

    def __init__(self, recording: Recording, graphs: Sequence[InductorGraph]) -> None:
        self._found = stored_profile(Path(recording.path), KERNELS)
        self._recording, self._graphs = recording, graphs
        self._numbers: dict[str, int] = {}
        for number, graph in enumerate(graphs):
            self._numbers.setdefault(graph.key, number)
        self._lines: dict[int, Mapping[int, Kernel]] = {}

    @property
    def head(self) -> ProfileHead | None:
        """The totals and headline for the first view; None if no kernel was timed."""
        rows = objects(self._found.get("kernels"))
        if not rows:
            return None
        return ProfileHead(
            chunk="profile",
            kernels=len(rows),
            seconds=sum(real(row.get("total")) for row in rows),
            headline=text(self._found.get("headline")),
        )

    @property
    def seconds(self) -> dict[tuple[int, int], float]:
        """The seconds of all measured calls, by graph and position of the call in its wrapper."""
        found: dict[tuple[int, int], float] = {}
        for row in objects(self._found.get("kernels")):
            number = self._numbers.get(text(row.get("graph")))
            kernel = self._kernel(number, row)
            if number is not None and kernel is not None:
                calls = self._graphs[number].kernels
                at = next(at for at, one in enumerate(calls) if one is kernel)
                # A call with dynamic sizes has a row for each size.
                found[number, at] = found.get((number, at), 0.0) + real(row.get("total"))
        return found

    @property
    def chunk(self) -> PageProfile:
        kernels = map(self._row, objects(self._found.get("kernels")))
        return PageProfile(
            headline=text(self._found.get("headline")),
            kernels=PageTable.of(ProfiledKernel, kernels),
            graphs=tuple(map(self._graph, objects(self._found.get("graphs")))),
            machines=tuple(map(_machine, objects(self._found.get("machines")))),
            notes=texts(self._found.get("notes")),
        )

    def _kernel(self, number: int | None, row: Found) -> Kernel | None:
        """Return the kernel that a wrapper line calls; None if unknown."""
        if number is None:
            return None
        if number not in self._lines:
            self._lines[number] = kernels_by_line(self._recording, self._graphs[number])
        found = self._lines[number].get(whole(row.get("wrapper_line")))
        return found if found is not None and found.name == text(row.get("kernel")) else None

    def _joined(self, row: Found, number: int | None) -> dict[str, Any]:
        """Join a row with the number of its graph and its kernel's id on the page."""
        kernel, name = self._kernel(number, row), text(row.get("kernel"))
        return {**row, "graph": number, "id": kernel_id(kernel) if kernel else name, "name": name}

    def _row(self, row: Found) -> ProfiledKernel:
        number = self._numbers.get(text(row.get("graph")))
        floor, parts = members(row.get("floor")), (row.get("read"), row.get("written"))
        named = {
            "sizes": _sizes(row),
            "bytes": None if None in parts else sum(map(whole, parts)),
            "floor": floor.get("seconds"),
            "limit": floor.get("limit"),
            "operations": ", ".join(texts(row.get("operations"))),
        }
        took = members(row.get("seconds"))
        return decode_any(ProfiledKernel, {**self._joined(row, number), **took, **named})

    def _graph(self, row: Found) -> ProfiledGraph:
        number = self._numbers.get(text(row.get("graph")))
        eager, usual = members(row.get("eager")), members(row.get("usual_call"))
        took = members(row.get("seconds"))
        return ProfiledGraph(
            graph=number,
            key=text(row.get("graph")),
            function=text(row.get("function")),
            sizes=_sizes(row),
            device=text(row.get("device")),
            measured_by=text(row.get("measured_by")),
            calls=whole(row.get("calls")),
            median=real(took.get("median")),
            low=real(took.get("low")),
            high=real(took.get("high")),
            eager=real(eager.get("median")) if eager else None,
            slower_than_eager=eager.get("slower_than_eager") is True,
            usual=real(usual.get("seconds")) if usual else None,
            kernels=PageTable.of(
                UsualKernel,
                (
                    decode_any(UsualKernel, self._joined(span, number))
                    for span in objects(usual.get("kernels"))
                ),
            ),
        )


def _machine(row: Found) -> ProfiledMachine:
    copies = [real(one.get("copy")) for one in objects(row.get("bandwidths"))]
    named = {
        "bandwidth": copies[-1] if copies else 0.0,
        "cached_bandwidth": max(copies, default=0.0),
    }
    return decode_any(ProfiledMachine, {**row, **named})


def _sizes(row: Found) -> str:
    return ", ".join(f"{name} = {size}" for name, size in members(row.get("sizes")).items())
