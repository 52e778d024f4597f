"""The profile in a recording, read for the page. It is untrusted: what is damaged is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inductoscope.model.entities import InductorGraph, Kernel, Recording
from inductoscope.model.wrapper_lines import kernels_by_line
from inductoscope.recording.profile_file import KERNELS, stored_profile
from inductoscope.recording.values import maybe_whole, members, objects, real, text, texts, whole
from inductoscope.views.page.profile_contract import (
    PageProfile,
    PageTable,
    ProfiledGraph,
    ProfiledKernel,
    ProfiledMachine,
    ProfileHead,
    UsualKernel,
)
from inductoscope.views.page.stage_panes import kernel_id


class StoredProfile:
    """What `profile` kept in a recording, joined with its graphs."""

    def __init__(self, recording: Recording, graphs: Sequence[InductorGraph]) -> None:
        self._found = stored_profile(Path(recording.path), KERNELS)
        self._recording, self._graphs = recording, graphs
        self._numbers: dict[str, int] = {}
        for number, graph in enumerate(graphs):
            self._numbers.setdefault(graph.key, number)
        self._lines: dict[int, Mapping[int, Kernel]] = {}

    @property
    def head(self) -> ProfileHead | None:
        """What the first view says; None if no kernel was timed."""
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
        """Seconds of all measured calls, by graph and by the place of the call in its wrapper."""
        found: dict[tuple[int, int], float] = {}
        for row in objects(self._found.get("kernels")):
            number = self._numbers.get(text(row.get("graph")))
            kernel = self._kernel(number, row)
            if number is not None and kernel is not None:
                calls = self._graphs[number].kernels
                at = next(at for at, one in enumerate(calls) if one is kernel)
                # Sizes that vary are measured apart.
                found[number, at] = found.get((number, at), 0.0) + real(row.get("total"))
        return found

    @property
    def chunk(self) -> PageProfile:
        """All of it."""
        return PageProfile(
            headline=text(self._found.get("headline")),
            kernels=PageTable.of(
                ProfiledKernel, map(self._row, objects(self._found.get("kernels")))
            ),
            graphs=tuple(map(self._graph, objects(self._found.get("graphs")))),
            machines=tuple(_machines(self._found)),
            notes=texts(self._found.get("notes")),
        )

    def _kernel(self, number: int | None, row: Mapping[str, Any]) -> Kernel | None:
        """The call of a kernel that a line of the wrapper makes."""
        if number is None:
            return None
        if number not in self._lines:
            self._lines[number] = kernels_by_line(self._recording, self._graphs[number])
        found = self._lines[number].get(whole(row.get("wrapper_line")))
        return found if found is not None and found.name == text(row.get("kernel")) else None

    def _names(self, number: int | None, row: Mapping[str, Any]) -> dict[str, str]:
        kernel = self._kernel(number, row)
        name = text(row.get("kernel"))
        return {"id": kernel_id(kernel) if kernel else name, "name": name}

    def _row(self, row: Mapping[str, Any]) -> ProfiledKernel:
        number = self._numbers.get(text(row.get("graph")))
        took, floor = members(row.get("seconds")), members(row.get("floor"))
        read, written = maybe_whole(row.get("read")), maybe_whole(row.get("written"))
        return ProfiledKernel(
            graph=number,
            **self._names(number, row),
            device=text(row.get("device")),
            sizes=_sizes(row),
            calls=whole(row.get("calls")),
            median=real(took.get("median")),
            low=real(took.get("low")),
            high=real(took.get("high")),
            total=real(row.get("total")),
            lost=real(row.get("lost")),
            bytes=None if read is None or written is None else read + written,
            flops=maybe_whole(row.get("flops")),
            floor=real(floor.get("seconds")) if floor else None,
            limit=text(floor.get("limit")),
            operations=", ".join(texts(row.get("operations"))),
            places=texts(row.get("places")),
        )

    def _graph(self, row: Mapping[str, Any]) -> ProfiledGraph:
        number = self._numbers.get(text(row.get("graph")))
        took, eager = members(row.get("seconds")), members(row.get("eager"))
        usual = members(row.get("usual_call"))
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
                    UsualKernel(
                        **self._names(number, span),
                        start=real(span.get("start")),
                        seconds=real(span.get("seconds")),
                    )
                    for span in objects(usual.get("kernels"))
                ),
            ),
        )


def _machines(found: Mapping[str, Any]) -> Iterator[ProfiledMachine]:
    for row in objects(found.get("machines")):
        copies = [real(one.get("copy")) for one in objects(row.get("bandwidths"))]
        matrix = members(row.get("matrix"))
        yield ProfiledMachine(
            device=text(row.get("device")),
            name=text(row.get("name")),
            threads=whole(row.get("threads")),
            measured=text(row.get("measured")),
            bandwidth=copies[-1] if copies else 0.0,
            cached_bandwidth=max(copies, default=0.0),
            matrix={name: real(matrix[name]) for name in matrix},
        )


def _sizes(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in members(row.get("sizes")).items())
