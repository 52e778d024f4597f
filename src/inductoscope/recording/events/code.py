"""Events about generated code: kernels, buffers, wrappers, native compilers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from inductoscope.recording.events.base import Event


@dataclass(frozen=True, kw_only=True)
class KernelDefined(Event):
    """A kernel was generated, or a library call in its place.

    language: C++, Triton, extern; lines: scheduler node, operation of its loop body, line;
    numbered: the same with the number of the line, from 1, for lines that the kernel kept.
    """

    kind = "kernel"
    graph: str = ""
    name: str
    language: str
    payload: str = ""
    nodes: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    lines: tuple[tuple[str, str, str], ...] = ()
    numbered: tuple[tuple[str, str, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class BufferReused(Event):
    """A buffer takes over the memory of another. how: memory, in place."""

    kind = "reuse"
    graph: str = ""
    old: str
    new: str
    how: str


@dataclass(frozen=True, kw_only=True)
class BuffersListed(Event):
    """The wrapper is generated. payload: JSON, the origin of every buffer."""

    kind = "buffers"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class MemoryListed(Event):
    """The kernels of a graph are generated.

    payload: JSON, the room of every buffer, the range of every symbol, and what guards assume.
    """

    kind = "memory"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class WrapperGenerated(Event):
    """The wrapper is generated."""

    kind = "wrapper"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class WrapperLoaded(Event):
    """The wrapper is loaded."""

    kind = "wrapper-loaded"
    graph: str = ""
    path: str = ""


@dataclass(frozen=True, kw_only=True)
class LibraryWanted(Event):
    """A C++ library is asked for; it is compiled only if a `native` event follows."""

    kind = "cpp-library"
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class NativeStart(Event):
    """A native compiler starts. tool: c++, triton."""

    kind = "native-start"
    tool: str
    source: str = ""
    kernel: str = ""
    config: str = ""


@dataclass(frozen=True, kw_only=True)
class NativeEnd(Event):
    """A native compiler ends.

    payload: the source; messages: a payload; passes: name and seconds; forms: payloads of TTIR,
    TTGIR, LLIR, PTX, SASS.
    """

    kind = "native"
    tool: str = ""
    source: str = ""
    kernel: str = ""
    config: str = ""
    output: str = ""
    command: str = ""
    seconds: float | None = None
    exit_code: int | None = None
    error: str = ""
    messages: str = ""
    payload: str = ""
    passes: tuple[tuple[str, float], ...] = ()
    forms: Mapping[str, str] = field(default_factory=dict)
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    cache_hit: bool = False
    target: str = ""
