"""Native compiles: a start and an end are joined; a start without an end is still running."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any, TypeVar

from inductoscope.model.entities import Compile, Kernel, NativeCompile, Recording
from inductoscope.recording.reader import Event
from inductoscope.recording.values import members, real

Item = TypeVar("Item")

# Characters of a C++ kernel that tell it from nearly all others.
_BEGINNING = 400


def fold_natives(events: Iterable[Event]) -> tuple[NativeCompile, ...]:
    """All runs of native compilers, in the order in which they ended, unfinished ones last."""
    running: dict[tuple[str, ...], Event] = {}
    done: list[NativeCompile] = []
    for event in events:
        key = (event.stream, event.text("source"), event.text("kernel"), event.text("config"))
        if event.kind == "native-start":
            running[key] = event
        elif event.kind == "native":
            running.pop(key, None)
            done.append(_freeze(event, ended=True))
    return (*done, *(_freeze(event, ended=False) for event in running.values()))


def _freeze(event: Event, *, ended: bool) -> NativeCompile:
    return NativeCompile(
        tool=event.text("tool"),
        source=event.text("source"),
        output=event.text("output"),
        command=event.text("command"),
        seconds=event.real("seconds") if ended else None,
        exit_code=_maybe_whole(event.fields.get("exit_code")),
        error=event.text("error"),
        messages=event.text("messages"),
        digest=event.text("payload"),
        kernel=event.text("kernel"),
        config=event.text("config"),
        forms=members(event.fields.get("forms")),
        registers=_maybe_whole(event.fields.get("registers")),
        spills=_maybe_whole(event.fields.get("spills")),
        shared=_maybe_whole(event.fields.get("shared")),
        passes=_passes(event.fields.get("passes")),
        cache_hit=event.fields.get("cache_hit") is True,
        process=event.stream,
    )


def _passes(rows: Any) -> tuple[tuple[str, float], ...]:
    return tuple(
        (str(row[0]), real(row[1]))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and len(row) == 2
    )


def _maybe_whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def compile_of_kernel(recording: Recording, kernel: Kernel) -> tuple[NativeCompile, ...]:
    """The native compiles of a kernel."""
    return NativeIndex(recording).of(kernel)


class NativeIndex:
    """Finds the native compiles of kernels: by name for Triton, by text for C++.

    The C++ compiler is given the kernel's text inside a larger file whose name is a hash, so the
    text itself is what joins the two.
    """

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    @cached_property
    def _by_name(self) -> dict[str, list[NativeCompile]]:
        return _grouped((native.kernel, native) for native in self._recording.natives)

    @cached_property
    def _texts(self) -> list[tuple[str, NativeCompile]]:
        natives = [native for native in self._recording.natives if native.digest]
        return [(_core(self._recording.payload(native.digest)), native) for native in natives]

    @cached_property
    def _by_beginning(self) -> dict[str, list[tuple[str, NativeCompile]]]:
        return _grouped((pair[0][:_BEGINNING], pair) for pair in self._texts)

    def of(self, kernel: Kernel) -> tuple[NativeCompile, ...]:
        """The native compiles of one kernel."""
        if kernel.language == "Triton":
            return tuple(self._by_name.get(kernel.name, ()))
        text = _core(self._recording.payload(kernel.digest))
        if not text:
            return ()
        likely = self._by_beginning.get(text[:_BEGINNING], self._texts)
        return tuple(native for found, native in likely if text in found)


def _grouped(pairs: Iterable[tuple[str, Item]]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for key, item in pairs:
        found.setdefault(key, []).append(item)
    return found


def _core(source: str) -> str:
    """The part of a C++ kernel that no wrapper changes: from its signature on."""
    start = source.find("void ")
    return source[start:].strip() if start >= 0 else ""


def libraries_from_cache(recording: Recording, compile_: Compile) -> int:
    """How many C++ libraries were in the cache: asked for, and never compiled in this run."""
    compiled = {native.digest for native in recording.natives if native.tool == "c++"}
    return sum(1 for digest in compile_.libraries if digest not in compiled)
