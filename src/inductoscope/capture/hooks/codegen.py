"""Code generation: kernels with what is inside them, the wrapper, and reuse of buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from inductoscope.capture.hooks.scheduler import origin_names
from inductoscope.capture.names import Hook, Replacement, TorchName, Wrap
from inductoscope.capture.observe import Arguments, Keywords, fail_stage, leave_stage, stage, watch
from inductoscope.capture.scope import SCOPE

_SCHEDULER = "torch._inductor.scheduler"
_WRAPPER = "torch._inductor.codegen.wrapper"

# Which variable of the generated code each operation of a loop body became, kernel by kernel.
# Kernels are built one after the other; what was gathered belongs to the next one defined.
_variables: dict[tuple[str, str, str], None] = {}


def _defined(language: str) -> Replacement:
    """Watches `define_kernel(self, source, nodes, …)`, which returns the kernel's name."""

    def after(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
        source, nodes = args[1], list(_scheduler_nodes(args[2]))
        name = str(result)
        SCOPE.emit(
            "kernel",
            graph=SCOPE.graph,
            name=name,
            language=language,
            payload=SCOPE.text(_final_source(str(source), name)),
            nodes=[node.get_name() for node in nodes],
            origins=_unique(origin for node in nodes for origin in origin_names(node.node)),
            reads=_unique(dep.name for node in nodes for dep in node.read_writes.reads),
            writes=_unique(dep.name for node in nodes for dep in node.read_writes.writes),
            variables=_take_variables() or None,
        )

    return watch(after=after)


def _scheduler_nodes(schedule: Any) -> Iterable[Any]:
    """The scheduler nodes of a schedule, which may hold markers and nested lists besides."""
    for item in schedule if isinstance(schedule, Iterable) else (schedule,):
        if hasattr(item, "get_nodes"):
            yield from (node for node in item.get_nodes() if hasattr(node, "read_writes"))
        elif isinstance(item, (list, tuple)):
            yield from _scheduler_nodes(item)


def _final_source(source: str, name: str) -> str:
    """The source with torch's placeholders filled in, as the wrapper will hold it."""
    for placeholder in ("DESCRIPTIVE_NAME", "KERNEL_NAME"):
        source = source.replace(f"Placeholder.{placeholder}", name).replace(placeholder, name)
    return source.replace("#pragma CMT", "//")


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _take_variables() -> list[list[str]]:
    taken = [list(key) for key in _variables]
    _variables.clear()
    return taken


KERNELS = Hook(
    stage="codegen",
    records="generated C++ kernels",
    wraps=(
        Wrap(
            TorchName("torch._inductor.codegen.cpp", "CppScheduling.define_kernel"),
            _defined("C++"),
        ),
    ),
)

TRITON_KERNELS = Hook(
    stage="codegen",
    records="generated Triton kernels",
    wraps=(
        Wrap(
            TorchName("torch._inductor.codegen.triton", "TritonScheduling.define_kernel"),
            _defined("Triton"),
        ),
    ),
)


# --- kernels that are calls of a library ----------------------------------------------------------


def _extern_call(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    node = args[1]
    operation = node.node
    kernel = getattr(operation, "python_kernel_name", None) or type(operation).__name__
    SCOPE.emit(
        "kernel",
        graph=SCOPE.graph,
        name=str(kernel),
        language="extern",
        nodes=[node.get_name()],
        origins=origin_names(operation),
        reads=_unique(dep.name for dep in node.read_writes.reads),
        writes=_unique(dep.name for dep in node.read_writes.writes),
    )


EXTERN_KERNELS = Hook(
    stage="codegen",
    records="calls of library kernels",
    wraps=(
        Wrap(TorchName(_SCHEDULER, "Scheduler.codegen_extern_call"), watch(after=_extern_call)),
    ),
)


# --- loop body operation → variable in the kernel -------------------------------------------------


def _operation_generated(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    from torch._inductor.virtualized import V

    body_node = getattr(V.interpreter, "current_node", None)
    if body_node is None:
        return
    scheduler_node = getattr(V.kernel, "current_node", None)
    owner = "" if scheduler_node is None else scheduler_node.get_name()
    for variable in result if isinstance(result, (list, tuple)) else (result,):
        name = getattr(variable, "name", None)
        if name:
            _variables[owner, body_node.name, name] = None


_generated = watch(after=_operation_generated)
_PROXY = "torch._inductor.codegen.common"

VARIABLES = Hook(
    stage="codegen",
    records="which variable of a kernel each loop body operation became",
    wraps=(
        Wrap(TorchName(_PROXY, "CSEProxy._default"), _generated),
        Wrap(TorchName(_PROXY, "CSEProxy.load"), _generated),
        Wrap(TorchName(_PROXY, "CSEProxy.reduction"), _generated),
    ),
)


# --- buffers --------------------------------------------------------------------------------------


def _reused(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    _, old, new = args[:3]
    _emit_reuse(old.get_name(), new.get_name(), "memory")


def _written_in_place(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    _, old, new = args[:3]
    _emit_reuse(str(old), str(new), "in place")


def _emit_reuse(old: str, new: str, how: str) -> None:
    SCOPE.emit("reuse", graph=SCOPE.graph, old=old, new=new, how=how)


BUFFER_REUSE = Hook(
    stage="codegen",
    records="buffers that take over the memory of others",
    wraps=(
        Wrap(TorchName(_WRAPPER, "PythonWrapperCodegen.make_buffer_reuse"), watch(after=_reused)),
        Wrap(
            TorchName("torch._inductor.codegen.common", "KernelArgs.make_inplace"),
            watch(after=_written_in_place),
        ),
    ),
)


# --- the wrapper ----------------------------------------------------------------------------------


def _loading(args: Arguments, kwargs: Keywords) -> Any:
    """Before the wrapper is loaded: loading compiles the kernels, and may fail or hang."""
    lowered, code = args[0], args[1]
    SCOPE.emit("wrapper", graph=SCOPE.graph, payload=SCOPE.text(code.value))
    buffers = {
        name: {
            "origin": None if origin is None else origin.name,
            "origins": origin_names(buffer),
        }
        for name, buffer in lowered.name_to_buffer.items()
        for origin in (buffer.get_origin_node(),)
    }
    SCOPE.emit("buffers", graph=SCOPE.graph, payload=SCOPE.json(buffers))
    return SCOPE.enter("wrapper")


def _loaded(frame: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    leave_stage(frame)
    SCOPE.emit("wrapper-loaded", graph=SCOPE.graph, path=getattr(result, "__file__", None))


WRAPPER = Hook(
    stage="codegen",
    records="the wrapper that calls the kernels, and the origin of every buffer",
    wraps=(
        Wrap(TorchName(_SCHEDULER, "Scheduler.codegen"), stage("codegen")),
        Wrap(TorchName(_WRAPPER, "PythonWrapperCodegen.generate"), stage("codegen")),
        Wrap(
            TorchName("torch._inductor.graph", "GraphLowering._compile_to_module_lines"),
            watch(before=_loading, after=_loaded, failed=fail_stage),
        ),
    ),
)
