"""The profile in a recording, read for the page. It is untrusted: what is damaged is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from inductoscope.model.entities import InductorGraph, Kernel, Recording
from inductoscope.model.wrapper_lines import kernels_by_line
from inductoscope.recording.profile_file import KERNELS, stored_profile
from inductoscope.recording.values import members, texts
from inductoscope.views.page.panes import kernel_id
from inductoscope.views.page.profile_contract import (
    PageProfile,
    PageTable,
    ProfiledGraph,
    ProfiledKernel,
    ProfiledMachine,
    ProfileHead,
    UsualKernel,
)


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
        rows = _items(self._found, "kernels")
        if not rows:
            return None
        return ProfileHead(
            chunk="profile",
            kernels=len(rows),
            seconds=sum(_real(row, "total") for row in rows),
            headline=_text(self._found, "headline"),
        )

    @property
    def seconds(self) -> dict[tuple[int, int], float]:
        """Seconds of all measured calls, by graph and by the place of the call in its wrapper."""
        found: dict[tuple[int, int], float] = {}
        for row in _items(self._found, "kernels"):
            number = self._numbers.get(_text(row, "graph"))
            kernel = self._kernel(number, row)
            if number is not None and kernel is not None:
                calls = self._graphs[number].kernels
                at = next(at for at, one in enumerate(calls) if one is kernel)
                # Sizes that vary are measured apart.
                found[number, at] = found.get((number, at), 0.0) + _real(row, "total")
        return found

    @property
    def chunk(self) -> PageProfile:
        """All of it."""
        return PageProfile(
            headline=_text(self._found, "headline"),
            kernels=PageTable.of(ProfiledKernel, map(self._row, _items(self._found, "kernels"))),
            graphs=tuple(map(self._graph, _items(self._found, "graphs"))),
            machines=tuple(_machines(self._found)),
            notes=texts(self._found.get("notes")),
        )

    def _kernel(self, number: int | None, row: Mapping[str, Any]) -> Kernel | None:
        """The call of a kernel that a line of the wrapper makes."""
        if number is None:
            return None
        if number not in self._lines:
            self._lines[number] = kernels_by_line(self._recording, self._graphs[number])
        found = self._lines[number].get(_whole(row, "wrapper_line") or 0)
        return found if found is not None and found.name == _text(row, "kernel") else None

    def _names(self, number: int | None, row: Mapping[str, Any]) -> dict[str, str]:
        kernel = self._kernel(number, row)
        name = _text(row, "kernel")
        return {"id": kernel_id(kernel) if kernel else name, "name": name}

    def _row(self, row: Mapping[str, Any]) -> ProfiledKernel:
        number = self._numbers.get(_text(row, "graph"))
        took, floor = members(row.get("seconds")), members(row.get("floor"))
        read, written = _whole(row, "read"), _whole(row, "written")
        return ProfiledKernel(
            graph=number,
            **self._names(number, row),
            device=_text(row, "device"),
            sizes=_sizes(row),
            calls=_whole(row, "calls") or 0,
            median=_real(took, "median"),
            low=_real(took, "low"),
            high=_real(took, "high"),
            total=_real(row, "total"),
            lost=_real(row, "lost"),
            bytes=None if read is None or written is None else read + written,
            flops=_whole(row, "flops"),
            floor=_real(floor, "seconds") if floor else None,
            limit=_text(floor, "limit"),
            operations=", ".join(texts(row.get("operations"))),
            places=texts(row.get("places")),
        )

    def _graph(self, row: Mapping[str, Any]) -> ProfiledGraph:
        number = self._numbers.get(_text(row, "graph"))
        took, eager = members(row.get("seconds")), members(row.get("eager"))
        usual = members(row.get("usual_call"))
        return ProfiledGraph(
            graph=number,
            key=_text(row, "graph"),
            function=_text(row, "function"),
            sizes=_sizes(row),
            device=_text(row, "device"),
            measured_by=_text(row, "measured_by"),
            calls=_whole(row, "calls") or 0,
            median=_real(took, "median"),
            low=_real(took, "low"),
            high=_real(took, "high"),
            eager=_real(eager, "median") if eager else None,
            slower_than_eager=eager.get("slower_than_eager") is True,
            usual=_real(usual, "seconds") if usual else None,
            kernels=PageTable.of(
                UsualKernel,
                (
                    UsualKernel(
                        **self._names(number, span),
                        start=_real(span, "start"),
                        seconds=_real(span, "seconds"),
                    )
                    for span in _items(usual, "kernels")
                ),
            ),
        )


def _machines(found: Mapping[str, Any]) -> Iterator[ProfiledMachine]:
    for row in _items(found, "machines"):
        copies = [_real(one, "copy") for one in _items(row, "bandwidths")]
        matrix = members(row.get("matrix"))
        yield ProfiledMachine(
            device=_text(row, "device"),
            name=_text(row, "name"),
            threads=_whole(row, "threads") or 0,
            measured=_text(row, "measured"),
            bandwidth=copies[-1] if copies else 0.0,
            cached_bandwidth=max(copies, default=0.0),
            matrix={name: _real(matrix, name) for name in matrix},
        )


def _sizes(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {size}" for name, size in members(row.get("sizes")).items())


def _items(found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = found.get(name)
    return [members(item) for item in value] if isinstance(value, list) else []


def _text(found: Mapping[str, Any], name: str) -> str:
    return str(found.get(name) or "")


def _whole(found: Mapping[str, Any], name: str) -> int | None:
    value = found.get(name)
    return value if isinstance(value, int) else None


def _real(found: Mapping[str, Any], name: str) -> float:
    value = found.get(name)
    return float(value) if isinstance(value, (int, float)) else 0.0
