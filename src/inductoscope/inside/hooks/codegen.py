"""Code generation: kernels and the nodes fused into them, the wrapper, and reuse of buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from inductoscope.inside.hooks.inductor import written_wrappers
from inductoscope.inside.hooks.kernel_lines import forget_writing, numbered_lines, take_lines
from inductoscope.inside.hooks.scheduler import origin_names
from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    Watching,
    enter_graph_stage,
    enter_stage,
    fail_stage,
    leave_stage,
    stage,
    until_left,
    watch,
)
from inductoscope.inside.scope import BROKEN, SCOPE
from inductoscope.recording.events import (
    BuffersListed,
    Kernel,
    MemoryListed,
    Reuse,
    WrapperGenerated,
    WrapperLoaded,
)
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Replacement, Wrap


def _defined(language: str) -> Replacement:
    """Watch `define_kernel(self, source, nodes, …)`, which returns the kernel's name."""

    def observer(args: Arguments, kwargs: Keywords) -> Watching:
        name = str((yield))
        source, nodes = args[1], list(_scheduler_nodes(args[2]))
        lines = take_lines({node.get_name() for node in nodes})
        SCOPE.emit(
            Kernel(
                graph=SCOPE.graph,
                name=name,
                language=language,
                payload=SCOPE.text(_final_source(str(source), name, language)),
                nodes=tuple(node.get_name() for node in nodes),
                origins=_unique(origin for node in nodes for origin in origin_names(node.node)),
                reads=_unique(dep.name for node in nodes for dep in node.read_writes.reads),
                writes=_unique(dep.name for node in nodes for dep in node.read_writes.writes),
                lines=lines,
                numbered=numbered_lines(str(source), lines),
            )
        )

    return watch(observer)


def _scheduler_nodes(schedule: Any) -> Iterable[Any]:
    """Yield the scheduler nodes of a schedule, which may also hold markers and nested lists."""
    for item in schedule if isinstance(schedule, Iterable) else (schedule,):
        if hasattr(item, "get_nodes"):
            yield from (node for node in item.get_nodes() if hasattr(node, "read_writes"))
        elif isinstance(item, (list, tuple)):
            yield from _scheduler_nodes(item)


def _final_source(source: str, name: str, language: str) -> str:
    """Return the source with torch's placeholders filled in, as the wrapper will hold it."""
    from torch._inductor.utils import Placeholder
    from torch._inductor.virtualized import V

    inner = "kernel" if language == "C++" and not V.graph.cpp_wrapper else name
    source = source.replace(str(Placeholder.KERNEL_NAME), inner)
    source = source.replace(str(Placeholder.DESCRIPTIVE_NAME), name)
    return source.replace("#pragma CMT", "//" if language == "C++" else "#")


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


# --- extern kernels: calls of a library -----------------------------------------------------------


def _extern_call(args: Arguments, kwargs: Keywords) -> Watching:
    yield
    node = args[1]
    # A user-written kernel with a fused operation wraps the node that holds the kernel.
    holder: Any = getattr(node, "kernel_node", node)
    operation = holder.node
    kernel = getattr(operation, "python_kernel_name", None) or type(operation).__name__
    SCOPE.emit(
        Kernel(
            graph=SCOPE.graph,
            name=str(kernel),
            language="extern",
            nodes=(node.get_name(),),
            origins=tuple(origin_names(operation)),
            reads=_unique(dep.name for dep in node.read_writes.reads),
            writes=_unique(dep.name for dep in node.read_writes.writes),
        )
    )


# --- buffers --------------------------------------------------------------------------------------


def _reused(how: str, name_of: Callable[[Any], str]) -> Replacement:
    """Watch a method whose arguments are the old buffer and the new one."""

    def observer(args: Arguments, kwargs: Keywords) -> Watching:
        yield
        old, new = map(name_of, args[1:3])
        SCOPE.emit(Reuse(graph=SCOPE.graph, old=old, new=new, how=how))

    return watch(observer)


# --- the wrapper ----------------------------------------------------------------------------------


def _load(args: Arguments, kwargs: Keywords) -> Watching:
    """Record the wrapper before loading, which compiles the kernels and may fail or hang."""
    frame = enter_stage(stages.WRAPPER)
    SCOPE.guard(lambda: _emit_wrapper(args[0], args[1].value), of=_load)
    result = yield from until_left(frame)
    SCOPE.emit(WrapperLoaded(graph=SCOPE.graph, path=getattr(result, "__file__", "") or ""))


def _compile_ahead(args: Arguments, kwargs: Keywords) -> Watching:
    """Record the C++ wrapper of an ahead-of-time compile, which is compiled with its kernels."""
    frame = enter_stage(stages.CPP_COMPILE)
    code: Any = args[2] if len(args) > 2 else kwargs.get("wrapper_code")
    SCOPE.guard(lambda: _emit_wrapper(args[1], code), of=_compile_ahead)
    result = yield from until_left(frame)
    files = result if isinstance(result, (list, tuple)) else [result]
    path = next((str(file) for file in files if str(file).endswith((".so", ".cpp"))), "")
    SCOPE.emit(WrapperLoaded(graph=SCOPE.graph, path=path))


def _emit_wrapper(lowered: Any, code: str) -> None:
    digest = SCOPE.text(code)
    written_wrappers.add(digest)
    SCOPE.emit(WrapperGenerated(graph=SCOPE.graph, payload=digest))
    buffers = {
        name: {
            "origin": None if origin is None else origin.name,
            "origins": origin_names(buffer),
        }
        for name, buffer in lowered.name_to_buffer.items()
        for origin in (buffer.get_origin_node(),)
    }
    SCOPE.emit(BuffersListed(graph=SCOPE.graph, payload=SCOPE.json(buffers)))


def _generate(args: Arguments, kwargs: Keywords) -> Watching:
    frame = enter_graph_stage(stages.CODEGEN)
    try:
        yield
    except BaseException as error:
        frame.detail = _node_being_generated()
        fail_stage(frame, error)
        raise
    leave_stage(frame)
    forget_writing()


def _node_being_generated() -> str:
    from torch._inductor.virtualized import V

    node = getattr(getattr(V.graph, "scheduler", None), "current_node", None)
    return "" if node is None else str(node.get_name())


# --------------------------------------------------------------------------------------------------
# Memory at the time of code generation: the extent of every buffer, and facts about sizes.
#
# A loop body holds its read and write indices as symbolic expressions. Whether an index is in
# bounds depends on the buffer's layout, the range of each symbol, and the guards on them.


# The longest guard, in characters, that is recorded; longer ones are counted as not understood.
_LONGEST = 2000
_TOO_LONG = "<too long>"


def _listed(args: Arguments, kwargs: Keywords) -> Watching:
    yield
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    described = {"buffers": dict(_buffers(graph)), **_describe_sizes(graph.sizevars)}
    SCOPE.emit(MemoryListed(graph=SCOPE.graph, payload=SCOPE.json(described)))


def _buffers(graph: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield descriptions of inputs, constants and buffers; skip those that cannot be described."""
    values = _input_values(graph)
    for name, given in graph.graph_inputs.items():
        found = SCOPE.guard(_describe_input, given, values.get(name))
        if found is not BROKEN and found:
            yield name, found
    for name, constant in graph.constants.items():
        if hasattr(constant, "stride"):
            yield name, {"size": _texts(constant.shape), "stride": _texts(constant.stride())}
    for name, buffer in graph.name_to_buffer.items():
        found = SCOPE.guard(_describe_buffer, buffer)
        if found is not BROKEN and found:
            yield name, found


def _input_values(graph: Any) -> dict[str, Any]:
    nodes = graph.module.graph.nodes
    return {node.target: node.meta.get("val") for node in nodes if node.op == "placeholder"}


def _describe_input(given: Any, value: Any) -> dict[str, Any] | None:
    layout = given.get_layout() if hasattr(given, "get_layout") else None
    if layout is None:
        return None
    found = {"size": _texts(layout.size), "stride": _texts(layout.stride), "input": True}
    # A kernel may address the whole storage behind a view, as with as_strided.
    around = SCOPE.guard(_memory_around, value)
    return found if around is BROKEN else {**found, **around}


def _memory_around(value: Any) -> dict[str, str]:
    if not hasattr(value, "untyped_storage"):
        return {}
    length = value.untyped_storage().size()
    return {"before": _text(value.storage_offset()), "bytes": _text(length)} | {
        "itemsize": str(value.dtype.itemsize)
    }


def _describe_buffer(buffer: Any) -> dict[str, Any] | None:
    layout: Any = getattr(buffer, "layout", None)
    mutated = getattr(layout, "get_buffer", None)
    if mutated is not None:
        return {"same_as": mutated().get_name()}
    if not all(hasattr(layout, name) for name in ("size", "stride", "offset")):
        return None  # An operation that only mutates other buffers has no memory.
    found: dict[str, Any] = {"size": _texts(layout.size), "stride": _texts(layout.stride)}
    view = getattr(layout, "view", None)
    if view is not None:
        found["inside"] = view.get_name()
        found["offset"] = _text(view.get_layout().offset)
    elif str(layout.offset) != "0":
        found["offset"] = _text(layout.offset)
    return found


def _describe_sizes(sizes: Any) -> dict[str, Any]:
    environment: Any = sizes.shape_env
    precomputed = getattr(sizes, "inv_precomputed_replacements", {})
    replaced = {**environment.replacements, **precomputed}
    asserted = getattr(environment, "deferred_runtime_asserts", {}).values()
    assumed = [
        *(guard.expr for guard in environment.guards),
        *(check.expr for checks in asserted for check in checks),
    ]
    return {
        "symbols": dict(_symbols(environment)),
        "replaced": {str(symbol): _text(value) for symbol, value in replaced.items()},
        "assumed": list(dict.fromkeys(map(_text, assumed))),
    }


def _symbols(environment: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    values = getattr(environment, "backed_var_to_val", None)
    if values is None:
        values = getattr(environment, "var_to_val", {})
    sources = getattr(environment, "var_to_sources", {})
    for symbol, span in environment.var_to_range.items():
        found = {"lower": str(span.lower), "upper": str(span.upper)}
        if symbol in values:
            found["value"] = str(values[symbol])
        for source in list(sources.get(symbol, ()))[:1]:
            name = source.name
            found["source"] = str(name() if callable(name) else name)
        yield str(symbol), found


def _texts(values: Any) -> list[str]:
    return [_text(value) for value in values]


def _text(value: Any) -> str:
    # Printing a SymInt would also give its expression, but evaluates its hint on the way.
    node = getattr(value, "node", None)
    text = str(value if node is None else node.expr)
    # A truncated expression could be read as another valid one.
    return text if len(text) <= _LONGEST else _TOO_LONG


HOOKS = (
    Hook(
        stage=stages.CODEGEN,
        records="generated C++ kernels",
        wraps=(Wrap(hooked.CPP_SCHEDULING_DEFINE_KERNEL, _defined("C++")),),
    ),
    Hook(
        stage=stages.CODEGEN,
        records="generated Triton kernels",
        wraps=(Wrap(hooked.TRITON_SCHEDULING_DEFINE_KERNEL, _defined("Triton")),),
    ),
    Hook(
        stage=stages.CODEGEN,
        records="calls of library kernels",
        wraps=(Wrap(hooked.CODEGEN_EXTERN_CALL, watch(_extern_call)),),
    ),
    Hook(
        stage=stages.CODEGEN,
        records="buffers that take over the memory of others",
        wraps=(
            Wrap(
                hooked.MAKE_BUFFER_REUSE, _reused("memory", lambda buffer: str(buffer.get_name()))
            ),
            Wrap(hooked.MAKE_INPLACE, _reused("in place", str)),
        ),
    ),
    Hook(
        stage=stages.CODEGEN,
        records="the wrapper that calls the kernels, and the origin of every buffer",
        wraps=(
            Wrap(hooked.SCHEDULER_CODEGEN, watch(_generate)),
            Wrap(hooked.PYTHON_WRAPPER_CODEGEN_GENERATE, stage(stages.CODEGEN)),
            Wrap(hooked.COMPILE_TO_MODULE_LINES, watch(_load)),
        ),
    ),
    Hook(
        stage=stages.CODEGEN,
        records="the C++ wrapper of a graph compiled ahead of time",
        wraps=(Wrap(hooked.AOT_CODE_COMPILER_COMPILE, watch(_compile_ahead)),),
    ),
    Hook(
        stage=stages.CODEGEN,
        records="the room of every buffer, and what guards say of sizes",
        wraps=(Wrap(hooked.SCHEDULER_CODEGEN, watch(_listed)),),
    ),
)
