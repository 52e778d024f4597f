"""The origin of an uncaught exception: the compiled graph, and the user's source line.

A frame of a generated wrapper shows that a compiled graph was being called. Its source line names a
buffer or a kernel, whose graph nodes have the user's source line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from inductoscope.model.entities import (
    Compile,
    CompileError,
    InductorGraph,
    Process,
    Recording,
    UncaughtException,
)
from inductoscope.model.join import captured_graph
from inductoscope.model.operation_trace import source_of_node
from inductoscope.recording.values import members, texts
from inductoscope.torch_facts.frames import Frame, frames_in, is_compilers, is_generated, is_users

_ASSIGNED = re.compile(r"^(\w+) = |\bout=(\w+)")
_NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Raising:
    """The origin of an uncaught exception, derived from the frames of its traceback."""

    # The innermost source line of the user in the traceback.
    caller: Frame | None = None
    # The wrapper line, and its graph and compile if known.
    wrapper: Frame | None = None
    compile: Compile | None = None
    graph: InductorGraph | None = None
    # The user's source line that this part of the graph was compiled from.
    compiled_line: str = ""
    # A user function that the compiled graph called: the code of a custom operator.
    callee: Frame | None = None
    # The failed compile that raised the exception.
    compile_error: CompileError | None = None
    # Whether the innermost frames are the compiler's own code.
    is_compilers: bool = False


def where_raised(recording: Recording, process: Process, error: UncaughtException) -> Raising:
    """Derive the origin of an exception that `process` left uncaught."""
    frames = frames_in(recording.payload(error.stack))
    failed = _failed_compile(recording, process, error)
    callers = [frame for frame in frames if is_users(frame.file)] or _without_file(frames)
    caller = callers[-1] if callers else None
    if failed is not None:
        return Raising(caller, compile=failed[0], compile_error=failed[1])
    wrappers = _wrappers(recording, process)
    inside = [n for n, f in enumerate(frames) if f.file in wrappers or is_generated(f.file)]
    if not inside:
        after = frames[frames.index(caller) :] if caller else frames
        return Raising(caller, is_compilers=any(is_compilers(frame.file) for frame in after))
    last = inside[-1]
    wrapper = frames[last]
    outer = [frame for frame in frames[:last] if is_users(frame.file)]
    called = [frame for frame in frames[last:] if is_users(frame.file)]
    compile_, graph = wrappers.get(wrapper.file, (None, None))
    line = "" if compile_ is None or graph is None else _line(recording, compile_, graph, wrapper)
    return Raising(
        caller=outer[-1] if outer else None,
        wrapper=wrapper,
        compile=compile_,
        graph=graph,
        compiled_line=line,
        callee=called[-1] if called else None,
    )


def _without_file(frames: tuple[Frame, ...]) -> list[Frame]:
    """Return the frames of a program without a file: `python -c` or standard input."""
    main = frames[0].file if frames else ""
    return [frame for frame in frames if frame.file == main and main in ("<string>", "<stdin>")]


def _failed_compile(
    recording: Recording, process: Process, error: UncaughtException
) -> tuple[Compile, CompileError] | None:
    """Find the failed compile; only first lines match, since torch appends to the message."""
    for compile_ in reversed(recording.compiles):
        for found in reversed(compile_.errors) if compile_.process == process.stream else ():
            is_same = found.type == error.type and _first_line(found) == _first_line(error)
            if is_same and not found.swallowed:
                return compile_, found
    return None


def _first_line(error: CompileError | UncaughtException) -> str:
    return error.message.strip().partition("\n")[0]


Wrappers = dict[str, tuple[Compile | None, InductorGraph | None]]


def _wrappers(recording: Recording, process: Process) -> Wrappers:
    return {
        graph.wrapper_path: (compile_, graph)
        for compile_ in recording.compiles
        if compile_.process == process.stream
        for graph in compile_.inductor
        if graph.wrapper_path
    }


def _line(recording: Recording, compile_: Compile, graph: InductorGraph, wrapper: Frame) -> str:
    """Return the source line that a wrapper line was generated for; empty if unknown."""
    for node in _nodes(recording, graph, wrapper.code):
        found = source_of_node(recording, compile_, graph.key, node)
        if found:
            return found
    return _only_line(recording, compile_, wrapper.code)


def _only_line(recording: Recording, compile_: Compile, code: str) -> str:
    """For a cached graph, return the only source line of the named operation, or of all."""
    captured = captured_graph(recording, compile_)
    calls = captured.calls if captured is not None else ()
    named = [node for node in calls if node.target in code]
    places = {str(node.place) for node in named or calls if node.place is not None}
    return places.pop() if len(places) == 1 else ""


def _nodes(recording: Recording, graph: InductorGraph, code: str) -> Iterator[str]:
    """Yield the FX nodes that a wrapper line assigns, then those that it mentions."""
    buffers = members(recording.data(graph.buffers))
    kernels = {kernel.name: kernel for kernel in graph.kernels}
    made = [name for match in _ASSIGNED.finditer(code) for name in match.groups() if name]
    for name in (*made, *_NAME.findall(code)):
        buffer = members(buffers.get(name))
        yield from filter(None, (str(buffer.get("origin") or ""), *texts(buffer.get("origins"))))
        if name in kernels:
            yield from reversed(kernels[name].origins)
