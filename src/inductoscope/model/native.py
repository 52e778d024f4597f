"""Native compiles: a start and an end are joined; a start without an end is still running."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from inductoscope.model.entities import Compile, Kernel, NativeCompile, Recording
from inductoscope.recording.reader import Event


def fold_natives(events: Iterable[Event]) -> tuple[NativeCompile, ...]:
    """All runs of native compilers, in the order in which they ended, unfinished ones last."""
    running: dict[tuple[str, str], Event] = {}
    done: list[NativeCompile] = []
    for event in events:
        key = (event.stream, event.text("source") or event.text("kernel") + event.text("config"))
        if event.kind == "native-start":
            running[key] = event
        elif event.kind == "native":
            running.pop(key, None)
            done.append(_freeze(event, ended=True))
        elif event.kind == "triton-passes":
            _add_passes(done, event)
    return (*done, *(_freeze(event, ended=False) for event in running.values()))


def _freeze(event: Event, *, ended: bool) -> NativeCompile:
    forms = event.fields.get("forms")
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
        forms=forms if isinstance(forms, dict) else {},
        registers=_maybe_whole(event.fields.get("registers")),
        spills=_maybe_whole(event.fields.get("spills")),
        shared=_maybe_whole(event.fields.get("shared")),
        process=event.stream,
    )


def _add_passes(done: list[NativeCompile], event: Event) -> None:
    """Triton reports its passes just before the compile that they belong to ends, or after."""
    rows = event.fields.get("passes")
    passes = tuple(
        (str(row[0]), float(row[1]))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, list) and len(row) == 2 and isinstance(row[1], (int, float))
    )
    files = event.fields.get("files")
    binary = _binary(files if isinstance(files, dict) else {})
    for index, native in enumerate(done):
        if native.kernel == event.text("kernel") and not native.passes:
            done[index] = replace(native, passes=passes, output=binary or native.output)
            return
    done.append(replace(_freeze(event, ended=False), tool="triton", passes=passes, output=binary))


def _binary(files: dict[str, Any]) -> str:
    for suffix in (".cubin", ".hsaco", ".so"):
        for name, path in files.items():
            if str(name).endswith(suffix):
                return str(path)
    return ""


def _maybe_whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def compile_of_kernel(recording: Recording, kernel: Kernel) -> tuple[NativeCompile, ...]:
    """The native compiles of a kernel: by its name for Triton, by its text for C++.

    The C++ compiler is given the kernel's text inside a larger file whose name is a hash, so the
    text itself is what joins the two.
    """
    if kernel.language == "Triton":
        return tuple(native for native in recording.natives if native.kernel == kernel.name)
    text = _core(recording.payload(kernel.digest))
    if not text:
        return ()
    return tuple(
        native
        for native in recording.natives
        if native.digest and text in recording.payload(native.digest)
    )


def _core(source: str) -> str:
    """The part of a C++ kernel that no wrapper changes: from its signature on."""
    start = source.find("void ")
    return source[start:].strip() if start >= 0 else ""


def libraries_from_cache(recording: Recording, compile_: Compile) -> int:
    """How many C++ libraries were in the cache: asked for, and never compiled in this run."""
    compiled = {native.digest for native in recording.natives if native.tool == "c++"}
    return sum(1 for digest in compile_.libraries if digest not in compiled)
