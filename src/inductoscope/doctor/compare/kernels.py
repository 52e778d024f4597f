"""The first kernel whose result is not what its graph says.

The wrapper that Inductor generates is Python code. Its syntax tree is rewritten so that it
announces every kernel call and reports every buffer that the kernel got. A buffer whose IR has an
origin node must hold the value of that node, which an interpreter computes from the same graph on
the same inputs. The first buffer that differs names the kernel and the node.
"""

from __future__ import annotations

import ast
import contextlib
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.compare.bug_or_rounding import is_close, judge_tensor
from inductoscope.doctor.compare.graphs import (
    NodeValues,
    input_names,
    inputs_for,
    node_values,
    snapshot,
)
from inductoscope.doctor.compare.values import copy_values
from inductoscope.recording.events.checking import KernelLaunched

TORCH_NAMES = {
    "torch._inductor.codecache": ("PyCodeCache.load_by_key_path",),
    "torch._inductor.graph": ("GraphLowering.codegen",),
}

# Names that the rewritten wrapper calls; no generated wrapper uses them itself.
_BEGIN, _BEFORE, _AFTER = "inductoscope_begin", "inductoscope_before", "inductoscope_after"

_NO_KERNELS = (
    "assert_",
    "empty_strided",
    "reinterpret_tensor",
    "args.clear",
    "len",
    "as_strided",
    _BEGIN,
)


@dataclass(frozen=True)
class KernelDivergence:
    """The first buffer that does not hold what its origin node computes."""

    kernel: str
    buffer: str
    node: str
    text: str
    # Names of the FX nodes that went into the buffer.
    origins: tuple[str, ...]
    graph: WatchedGraph


@dataclass
class WatchedGraph:
    """A lowered graph: where each buffer comes from, and on what the graph was called."""

    module: GraphModule
    origins: dict[str, tuple[str | None, tuple[str, ...]]]
    lowered: Any
    # Buffers that are written again later, with the nodes that do it.
    rewritten: dict[str, set[str]] = field(default_factory=dict)
    # The types that the lowered graph gives to buffers.
    planned: dict[str, torch.dtype] = field(default_factory=dict)
    inputs: dict[str, Any] = field(default_factory=dict)
    expected: NodeValues | None = None
    checked: dict[str, torch.Tensor] = field(default_factory=dict)

    def forget(self) -> None:
        """Let go of all values."""
        self.inputs, self.expected, self.checked = {}, None, {}


@dataclass(frozen=True)
class LoadedWrapper:
    """A generated wrapper as it is loaded in this process, and the graph that it computes."""

    module: Any
    path: str
    graph: WatchedGraph


@dataclass
class KernelWatch:
    """Rewrites wrappers as they are loaded, and keeps what they report when they run."""

    compare: bool = True
    # Called after every kernel that gets a buffer.
    on_kernel: Callable[[str], None] = lambda kernel: None
    # Called at once for every buffer that is not what its node says.
    on_divergence: Callable[[KernelDivergence], None] = lambda found: None
    divergences: list[KernelDivergence] = field(default_factory=list)
    graphs: list[WatchedGraph] = field(default_factory=list)
    _loading: WatchedGraph | None = None

    @property
    def known_inputs(self) -> dict[str, Any]:
        """Values of graph inputs by name, of all graphs that were called."""
        found: dict[str, Any] = {}
        for graph in self.graphs:
            found.update(graph.inputs)
        return found

    @contextlib.contextmanager
    def watching(self) -> Iterator[KernelWatch]:
        """While this is active, wrappers are rewritten as they are loaded."""
        from torch._inductor.codecache import PyCodeCache
        from torch._inductor.graph import GraphLowering

        codegen = GraphLowering.codegen
        load = PyCodeCache.__dict__["load_by_key_path"].__func__

        def codegen_watched(lowered: Any, *args: Any, **kwargs: Any) -> Any:
            result = codegen(lowered, *args, **kwargs)
            if not getattr(lowered, "is_const_graph", False):
                self._loading = described(lowered)
            return result

        def load_watched(cls: Any, key: str, path: str, *args: Any, **kwargs: Any) -> Any:
            module = load(cls, key, path, *args, **kwargs)
            # Loading a wrapper may load its kernels, as modules of their own.
            if self._loading is not None and hasattr(module, "call"):
                graph, self._loading = self._loading, None
                self._change(module, path, graph)
            return module

        with contextlib.ExitStack() as stack:
            _set(stack, GraphLowering, "codegen", codegen_watched)
            _set(stack, PyCodeCache, "load_by_key_path", classmethod(load_watched))
            yield self

    @contextlib.contextmanager
    def watching_loaded(self, wrappers: Iterable[LoadedWrapper]) -> Iterator[KernelWatch]:
        """While this is active, wrappers that were loaded before report what they do."""
        with contextlib.ExitStack() as stack:
            for wrapper in wrappers:
                code, names = self._rewritten_code(wrapper.path, wrapper.graph)
                vars(wrapper.module).update(names)
                codes = _codes_of_functions(code)
                for name, function in _functions_of(wrapper.module).items():
                    if name in codes:
                        stack.callback(setattr, function, "__code__", function.__code__)
                        function.__code__ = codes[name]
                self.graphs.append(wrapper.graph)
                stack.callback(wrapper.graph.forget)
            yield self

    def _rewritten_code(
        self, path: str, graph: WatchedGraph
    ) -> tuple[types.CodeType, dict[str, Any]]:
        """The code of a wrapper that reports what it does, and the functions that it calls."""
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        announce = _Announce()
        changed = ast.fix_missing_locations(announce.visit(tree))
        after = self._after(graph, announce.mentions)
        names = {_BEGIN: self._begin(graph), _BEFORE: _announce, _AFTER: after}
        return compile(changed, path, "exec"), names

    def _change(self, module: Any, path: str, graph: WatchedGraph) -> None:
        """Execute the rewritten wrapper and let the module call it."""
        code, names = self._rewritten_code(path, graph)
        fresh = types.ModuleType(module.__name__)
        fresh.__dict__.update(names, __file__=path)
        exec(code, fresh.__dict__)
        for name in ("call", "runner", "Runner", "recursively_apply_fns"):
            if name in fresh.__dict__:
                setattr(module, name, fresh.__dict__[name])
        self.graphs.append(graph)

    def _begin(self, graph: WatchedGraph) -> Callable[[list[Any]], None]:
        names = input_names(graph.module)

        def begin(arguments: list[Any]) -> None:
            graph.checked.clear()
            values = copy_values(list(arguments))
            graph.inputs = dict(zip(names, values, strict=False))
            if self.compare:
                try:
                    graph.expected = node_values(
                        graph.module, inputs_for(graph.module, graph.inputs)
                    )
                except Exception:
                    graph.expected = None  # The graph cannot be interpreted.

        return begin

    def _after(
        self, graph: WatchedGraph, mentions: dict[str, int]
    ) -> Callable[[str, dict[str, Any]], None]:
        """A buffer is compared after the kernel that makes it. One that is written again later
        holds the value of its node only after the last kernel that gets it."""
        seen: dict[str, int] = {}

        def after(kernel: str, buffers: dict[str, Any]) -> None:
            self.on_kernel(kernel)
            for name, value in buffers.items():
                seen[name] = seen.get(name, 0) + 1
                is_first, is_last = seen[name] == 1, seen[name] >= mentions.get(name, 1)
                if not isinstance(value, torch.Tensor):
                    continue
                if is_first or name in graph.rewritten:
                    graph.checked[name] = value.detach().clone()
                if is_last if name in graph.rewritten else is_first:
                    found = _diverges(graph, kernel, name, value)
                    if found is not None:
                        self.divergences.append(found)
                        self.on_divergence(found)
            if not any(seen.get(name, 0) < count for name, count in mentions.items()):
                seen.clear()

        return after


def _codes_of_functions(code: types.CodeType) -> dict[str, types.CodeType]:
    """The code of every function of a module, by its qualified name."""
    found: dict[str, types.CodeType] = {}
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            inner = {f"{item.co_name}.{name}": c for name, c in _codes_of_functions(item).items()}
            found |= {item.co_name: item, **inner}
    return found


def _functions_of(module: Any) -> dict[str, types.FunctionType]:
    """The functions of a wrapper that call kernels."""
    runner = vars(getattr(module, "Runner", object)).get("call")
    found = {"Runner.call": runner, **vars(module)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, types.FunctionType)
        and (name in ("call", "Runner.call") or name.startswith("partition"))
    }


def _set(stack: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    original = owner.__dict__[name]
    setattr(owner, name, value)
    stack.callback(setattr, owner, name, original)


def described(lowered: Any) -> WatchedGraph:
    """What has to be known of a lowered graph to watch its kernels."""
    origins, planned = {}, {}
    for name, buffer in lowered.name_to_buffer.items():
        origin = buffer.get_origin_node()
        every = tuple(node.name for node in getattr(buffer, "origins", ()))
        origins[name] = (None if origin is None else origin.name, every)
        dtype = getattr(getattr(buffer, "layout", None), "dtype", None)
        if dtype is not None:
            planned[name] = dtype
    return WatchedGraph(snapshot(lowered.module), origins, lowered, _rewritten(lowered), planned)


def _rewritten(lowered: Any) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for operation in lowered.operations:
        # Not every kind of operation says so; one that does not is compared like any other.
        with contextlib.suppress(AttributeError, NotImplementedError):
            writers = {node.name for node in operation.origins}
            for name in operation.get_mutation_names():
                found.setdefault(name, set()).update(writers)
    return found


def _announce(kernel: str) -> None:
    SCOPE.emit(KernelLaunched(kernel=kernel))


def _diverges(
    graph: WatchedGraph, kernel: str, name: str, value: torch.Tensor
) -> KernelDivergence | None:
    origin, origins = graph.origins.get(name, (None, ()))
    expected = graph.expected
    if origin is None or expected is None:
        return None
    eager = expected.eager.get(origin)
    if not isinstance(eager, torch.Tensor) or eager.numel() != value.numel():
        return None
    value = value.detach()
    planned = planned_dtype(graph, name, value)
    if planned != value.dtype:
        text = f"{name} is {value.dtype}, and the lowered graph takes it for {planned}"
        return KernelDivergence(kernel, name, origin, text, origins, graph)
    if eager.dtype != value.dtype:
        text = f"{name} is {value.dtype}, its node {origin} is {eager.dtype}"
        return KernelDivergence(kernel, name, origin, text, origins, graph)
    if eager.shape != value.shape:
        value = value.reshape(eager.shape)
        if _same_in_some_order(eager, value):
            return None
    if is_close(eager, value) or _holds_later_value(graph, name, value):
        return None
    reference = expected.float64.get(origin)
    reference = reference if isinstance(reference, torch.Tensor) else None
    difference, is_wrong = judge_tensor(name, eager, value, reference, expected.samples(origin))
    if not is_wrong:
        return None
    return KernelDivergence(kernel, name, origin, difference.text, origins, graph)


def _holds_later_value(graph: WatchedGraph, name: str, value: torch.Tensor) -> bool:
    """Whether a buffer holds the value of a later node that the same kernel wrote into it."""
    values = graph.expected.eager if graph.expected is not None else {}
    later = [values.get(node) for node in graph.rewritten.get(name, ())]
    return any(
        isinstance(item, torch.Tensor)
        and (item.numel(), item.dtype) == (value.numel(), value.dtype)
        and is_close(item.reshape(-1), value.reshape(-1))
        for item in later
    )


def planned_dtype(graph: WatchedGraph, buffer: str, like: torch.Tensor) -> torch.dtype:
    """The type of a buffer in the lowered graph; that of `like` if it has none there."""
    return graph.planned.get(buffer, like.dtype)


def _same_in_some_order(one: torch.Tensor, two: torch.Tensor) -> bool:
    """A buffer may hold a node's values in another order."""
    if one.dtype.is_complex:
        return False
    mine, other = one.flatten().double().sort().values, two.flatten().double().sort().values
    return torch.allclose(mine, other, rtol=1e-4, atol=1e-5, equal_nan=True)


class _Announce(ast.NodeTransformer):
    """Adds the reports to every function named `call` and to partitions."""

    def __init__(self) -> None:
        # How often each buffer is reported.
        self.mentions: dict[str, int] = {}

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name == "call" or node.name.startswith("partition"):
            node.body = self._announced(node.body, is_entry=node.name == "call")
        return node

    def _announced(self, body: list[ast.stmt], *, is_entry: bool) -> list[ast.stmt]:
        found: list[ast.stmt] = []
        if is_entry:
            found += ast.parse(f"{_BEGIN}(args)").body
        for statement in body:
            if isinstance(statement, (ast.With, ast.If, ast.For)):
                statement.body = self._announced(statement.body, is_entry=False)
                found.append(statement)
                continue
            kernel, buffers = _kernel_call(statement)
            if kernel:
                found += ast.parse(f"{_BEFORE}({kernel!r})").body
            found.append(statement)
            if buffers:
                given = ", ".join(f"{name!r}: {name}" for name in buffers)
                found += ast.parse(f"{_AFTER}({kernel!r}, {{{given}}})").body
                for name in buffers:
                    self.mentions[name] = self.mentions.get(name, 0) + 1
        return found


def _kernel_call(statement: ast.stmt) -> tuple[str, list[str]]:
    """The kernel that a statement calls, and the buffers that it gets or returns."""
    if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript):
        return "", _buffers(statement.targets)  # One of several results.
    if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(
        statement.value, ast.Call
    ):
        return "", []
    name = ast.unparse(statement.value.func)
    if name.startswith(_NO_KERNELS):
        return "", []
    call = statement.value
    parts: list[ast.AST] = [*call.args, *(keyword.value for keyword in call.keywords)]
    if isinstance(statement, ast.Assign):
        parts += statement.targets
    return name.removesuffix(".run"), _buffers(parts)


def _buffers(parts: Any) -> list[str]:
    names = {
        item.id
        for part in parts
        for item in ast.walk(part)
        if isinstance(item, ast.Name) and item.id.startswith("buf")
    }
    return sorted(names)
