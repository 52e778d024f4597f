"""The minimum work of a kernel: bytes to read and write, and operations.

Every input is read once and every output written once. A buffer that is only used inside the
kernel need not exist. Bytes are torch's own count for each scheduler node, which accounts for
broadcast values and partial reads of buffers. Operations of matrix products, convolutions and
attention follow from their shapes, by the formulas of torch.utils.flop_counter: a multiply-add
counts as two.
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from inductoscope.model.entities import Recording
from inductoscope.model.fx import FxGraph, FxNode
from inductoscope.model.join import GraphJoin
from inductoscope.model.memory import GraphMemory, read_memory
from inductoscope.model.schedule import ScheduledNode
from inductoscope.profiling import machine as machines
from inductoscope.profiling.machine import TF32, Floor, MachineLimits, memory_seconds, product_rate
from inductoscope.profiling.timings import CONVOLUTIONS, PRODUCTS
from inductoscope.recording.events import Kernel
from inductoscope.recording.values import members
from inductoscope.torch_facts.index_expressions import number_of, type_width

Shape = tuple[int, ...]
# Returns the value of a recorded size; raises ValueError if it is unknown.
SizeOf = Callable[[Any], int]


@dataclass(frozen=True)
class MatrixWork:
    flops: int
    dtype: str


def matrix_work(graph: FxGraph, node: FxNode, size_of: SizeOf) -> MatrixWork | None:
    arguments = _arguments(graph, node, size_of)
    tensors = [a for a in arguments if isinstance(a, _Operand)]
    if not tensors or node.operation not in FORMULAS:
        return None
    try:
        flops = FORMULAS[node.operation](arguments, _shape(node.value, size_of))
    except (AttributeError, IndexError, TypeError, ValueError, ZeroDivisionError):
        return None
    return MatrixWork(flops, tensors[-1].dtype)


def operand_bytes(graph: FxGraph, node: FxNode, size_of: SizeOf) -> int:
    """Return the bytes of a node's tensor arguments, each once; for a view, only its elements."""
    tensors = {a for a in _arguments(graph, node, size_of) if isinstance(a, _Operand)}
    return sum(math.prod(a.shape) * (type_width(a.dtype) or 0) for a in tensors)


@dataclass(frozen=True)
class _Operand:
    name: str
    shape: Shape
    dtype: str


_UNREADABLE = (SyntaxError, ValueError, TypeError, MemoryError, RecursionError)


def _arguments(graph: FxGraph, node: FxNode, size_of: SizeOf) -> list[Any]:
    try:
        tree = ast.parse(node.args or "()", mode="eval").body
    except _UNREADABLE:
        return []
    items = tree.elts if isinstance(tree, ast.Tuple) else [tree]
    return [_argument(graph, item, size_of) for item in items]


def _argument(graph: FxGraph, item: ast.expr, size_of: SizeOf) -> Any:
    if isinstance(item, ast.Name):
        node = graph.node(item.id)
        value = members(node.value) if node is not None else {}
        shape = _shape(value, size_of)
        return None if shape is None else _Operand(item.id, shape, str(value.get("dtype", "")))
    try:
        return ast.literal_eval(item)
    except _UNREADABLE:
        return None


def _shape(value: Any, size_of: SizeOf) -> Shape | None:
    """Return the shape of a value, or of the first of several results."""
    if isinstance(value, list):
        value = value[0] if value else None
    try:
        return tuple(size_of(size) for size in members(value)["shape"])
    except (ValueError, TypeError, KeyError):
        return None


# --- formulas -------------------------------------------------------------------------------------

# A function of an operation's arguments and the shape of its result, which may be unknown. A
# missing value raises one of the errors that `matrix_work` expects.
Formula = Callable[[Sequence[Any], Any], int]


def _product(first: int) -> Formula:
    return lambda given, result: 2 * math.prod(given[first].shape) * given[first + 1].shape[-1]


def _linear(given: Sequence[Any], result: Any) -> int:
    return int(2 * math.prod(result) * given[0].shape[-1])


def _convolution(given: Sequence[Any], result: Any) -> int:
    is_transposed = len(given) > 6 and given[6] is True
    return _convolved(given[0].shape, given[1].shape, result, is_transposed)


def _convolved(given: Shape, weight: Shape, result: Shape, transposed: bool) -> int:
    """Count a convolution: one filter per element of the output, or of the input if transposed."""
    return 2 * math.prod(given if transposed else result) * math.prod(weight[1:])


def _convolution_backward(given: Sequence[Any], result: Any) -> int:
    gradient, forward, weight = (each.shape for each in given[:3])
    wanted = sum(map(bool, given[10][:2]))
    return wanted * _convolved(forward, weight, gradient, given[7] is True)


def _attention(products: int, first: int = 0) -> Formula:
    """Return the formula of attention with `products` products of the size of query times key."""

    def formula(given: Sequence[Any], result: Any) -> int:
        query, key, value = (each.shape for each in given[first : first + 3])
        pairs = math.prod(query[:-1]) * key[-2]
        return int(products * pairs * (query[-1] + value[-1]))

    return formula


FORMULAS: Mapping[str, Formula] = {
    "mm": _product(0),
    "bmm": _product(0),
    "addmm": _product(1),
    "baddbmm": _product(1),
    "_int_mm": _product(0),
    "_scaled_mm": _product(0),
    "_linear_pointwise": _linear,
    "_mkl_linear": _linear,
    "convolution": _convolution,
    "_convolution_pointwise": _convolution,
    "convolution_backward": _convolution_backward,
    "_scaled_dot_product_flash_attention": _attention(2),
    "_scaled_dot_product_efficient_attention": _attention(2),
    "_scaled_dot_product_cudnn_attention": _attention(2),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(2),
    "_scaled_dot_product_flash_attention_backward": _attention(5, 1),
    "_scaled_dot_product_efficient_attention_backward": _attention(5, 1),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(5, 1),
}


# --- kernels --------------------------------------------------------------------------------------

# Functions of many instructions, for which the machine's rate is measured.
FUNCTIONS = (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "tanh",
    "sigmoid", "erf", "erfc", "pow", "sqrt", "rsqrt", "lgamma", "atan", "atan2", "asin", "acos",
    "sinh", "cosh",
)  # fmt: skip
# Lines of a loop body that compute nothing.
_NO_WORK = {
    "load", "store", "constant", "index_expr", "store_reduction", "to_dtype", "to_dtype_bitcast",
    "masked", "indirect_indexing", "get_index", "set_indirect", "check_bounds", "reduction_result",
}  # fmt: skip
# The language of extern kernels, which call a library.
_LIBRARY = "extern"
_OPERATION = re.compile(r"^    \w+ = ops\.(\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class KernelWork:
    """The minimum work of one call of a kernel; None for unknown parts."""

    read: int | None = None
    written: int | None = None
    # Operations of matrix units, by type.
    matrix: Mapping[str, int] = field(default_factory=dict)
    # The number of other operations, and the expensive functions among them by name.
    operations: int = 0
    functions: Mapping[str, int] = field(default_factory=dict)
    # The parts that are not counted, in words.
    missing: str = ""

    @property
    def bytes(self) -> int | None:
        return None if self.read is None or self.written is None else self.read + self.written

    @property
    def flops(self) -> int:
        """The number of all operations; an expensive function counts as one."""
        return sum(self.matrix.values()) + self.operations


def floor_of(work: KernelWork, machine: MachineLimits) -> Floor | None:
    """Return the least time of a kernel on a machine; None if nothing is known."""
    at, rates = machine.functions, {dtype: product_rate(machine, dtype) for dtype in work.matrix}
    moved = None
    if work.read is not None and work.written is not None:
        moved = memory_seconds(machine, work.read, work.written)
    known = {
        machines.MEMORY: moved,
        machines.MATRIX: sum(work.matrix[dtype] / rate for dtype, rate in rates.items() if rate),
        machines.ARITHMETIC: work.operations / machine.vector if machine.vector else None,
        machines.FUNCTIONS: sum(n / at[name] for name, n in work.functions.items() if name in at),
    }
    parts = {limit: seconds for limit, seconds in known.items() if seconds}
    if not parts:
        return None
    limit = max(parts, key=lambda name: parts[name])
    return Floor(parts[limit], limit, parts, work.bytes or 0)


class GraphWork:
    def __init__(self, join: GraphJoin) -> None:
        self.join = join
        self.recording, self.compile, self.graph = join.recording, join.compile, join.graph

    @cached_property
    def memory(self) -> GraphMemory:
        return read_memory(self.recording, self.compile, self.graph)

    @cached_property
    def hints(self) -> dict[str, int]:
        return self.memory.hints

    @cached_property
    def _measured(self) -> dict[str, ScheduledNode]:
        """The single nodes before fusion, for which bytes are recorded."""
        return {leaf.name: leaf for node in self.join.before for leaf in node.leaves}

    @cached_property
    def _leaves(self) -> dict[str, ScheduledNode]:
        after = {leaf.name: leaf for node in self.join.after for leaf in node.leaves}
        return {**self._measured, **after}

    @cached_property
    def _makers(self) -> dict[str, set[str]]:
        """The scheduler nodes that write each operation's results."""
        found: dict[str, set[str]] = defaultdict(set)
        for name, leaf in self._leaves.items():
            for buffer in leaf.buffers:
                found[buffer.origin].add(name)
        return found

    def of(
        self,
        kernel: Kernel,
        sizes: Mapping[str, int] | None = None,
        in_tf32: Collection[str] = (),
    ) -> KernelWork:
        """Return the work of one call with these sizes, by default those it was compiled with.

        `in_tf32` are the operations on float32 that torch may run in TF32.
        """
        values = {**self.hints, **(sizes or {})}
        read, written = self._bytes(kernel, values)
        matrix = self._matrix(kernel, values, in_tf32)
        operations, functions = self._operations(kernel, values)
        missing = "" if read is not None else "the sizes of its buffers are not known"
        if kernel.language == _LIBRARY and not matrix:
            missing = "how much of its inputs a library reads, and what it computes, is not known"
        return KernelWork(read, written, matrix, operations, functions, missing)

    # --- bytes ------------------------------------------------------------------------------------

    def moved(self, kernel: Kernel) -> int | None:
        """Return the bytes that one call has to move, with the sizes it was compiled with."""
        return KernelWork(*self._bytes(kernel, self.hints)).bytes

    def _bytes(self, kernel: Kernel, values: Mapping[str, int]) -> tuple[int | None, int | None]:
        nodes = [self._measured[name] for name in kernel.nodes if name in self._measured]
        if not nodes or len(nodes) != len(kernel.nodes):
            return None, None
        inside = set(kernel.nodes)
        made = {buffer.name: buffer for node in nodes for buffer in node.buffers}
        moved: dict[str, int] = {}
        for node in nodes:
            counted = node.bytes or self._whole_buffers(node)
            if counted is None:
                return None, None
            for name, count in counted.items():
                moved[name] = max(moved.get(name, 0), min(count, self._whole(name) or count))
        read = sum(self._now(n, c, values) for n, c in moved.items() if n not in made)
        written = sum(
            self._now(n, c, values)
            for n, c in moved.items()
            if n in made and not (made[n].users and set(made[n].users) <= inside)
        )
        # A buffer that is mutated in place is read and written.
        changed = {old for buffer in made.values() for old in buffer.mutates}
        written += sum(self._now(n, moved[n], values) for n in changed if n in moved)
        if kernel.language == _LIBRARY:
            return self._read_by_library(kernel, read, values), written
        return read, written

    def _read_by_library(self, kernel: Kernel, whole: int, values: Mapping[str, int]) -> int | None:
        """Return the bytes that extern kernels read of buffers, which torch counts as a whole.

        None for operations such as embedding look-ups, whose reads are data-dependent.
        """
        graph, nodes = self.join.final, self._matrix_nodes(kernel)
        if graph is None or not nodes:
            return None
        given = sum(operand_bytes(graph, n, lambda size: _value(size, values)) for n in nodes)
        return min(whole, given)

    def _whole_buffers(self, node: ScheduledNode) -> dict[str, int] | None:
        """Count whole buffers, for a recording without torch's count; None if unknown."""
        found = {name: self._whole(name) for name in (*node.reads, *node.writes)}
        known = {name: count for name, count in found.items() if count is not None}
        return known if len(known) == len(found) else None

    def _whole(self, buffer: str) -> int | None:
        room, width = self.memory.rooms.get(buffer), self.widths.get(buffer)
        elements = None if room is None else self._elements(room.size, self.hints)
        return None if elements is None or width is None else elements * width

    @cached_property
    def widths(self) -> dict[str, int]:
        """The bytes of an element of each buffer and each input."""
        found = {b.name: type_width(b.dtype) for n in self._leaves.values() for b in n.buffers}
        for node in self.join.final.nodes if self.join.final else ():
            value = node.value if isinstance(node.value, dict) else {}
            if node.op == "placeholder" and "dtype" in value:
                found.setdefault(node.name, type_width(str(value["dtype"])))
        return {name: width for name, width in found.items() if width}

    def _now(self, buffer: str, count: int, values: Mapping[str, int]) -> int:
        """Scale torch's count, made with the sizes of the first call, to the current sizes."""
        room = self.memory.rooms.get(buffer)
        if room is None or values == self.hints:
            return count
        before, now = self._elements(room.size, self.hints), self._elements(room.size, values)
        return round(count * now / before) if before and now is not None else count

    def _elements(self, size: Iterable[str], values: Mapping[str, int]) -> int | None:
        try:
            return math.prod(_value(text, values) for text in size)
        except ValueError:
            return None

    # --- operations -------------------------------------------------------------------------------

    def _matrix(
        self, kernel: Kernel, values: Mapping[str, int], in_tf32: Collection[str]
    ) -> dict[str, int]:
        graph, found = self.join.final, Counter[str]()
        for node in self._matrix_nodes(kernel):
            work = matrix_work(graph, node, lambda size: _value(size, values)) if graph else None
            if work is not None:
                dtype = work.dtype.removeprefix("torch.")
                kind = CONVOLUTIONS if "convolution" in node.operation else PRODUCTS
                found[TF32 if dtype == "float32" and kind in in_tf32 else dtype] += work.flops
        return dict(found)

    def _matrix_nodes(self, kernel: Kernel) -> list[FxNode]:
        """Return the matrix operations that the kernel itself computes, not those of its inputs."""
        graph, inside = self.join.final, set(kernel.nodes)
        leaves = [self._leaves[name] for name in kernel.nodes if name in self._leaves]
        # Operations of a product that is computed in a loop are counted from its body.
        if graph is None or (leaves and all(leaf.body for leaf in leaves)):
            return []
        own = {buffer.origin for leaf in leaves for buffer in leaf.buffers}
        nodes = [
            graph.node(name)
            for name in dict.fromkeys(kernel.origins)
            if name in own or self._makers.get(name, inside) <= inside
        ]
        return [node for node in nodes if node is not None and node.operation in FORMULAS]

    def _operations(self, kernel: Kernel, values: Mapping[str, int]) -> tuple[int, dict[str, int]]:
        total, functions = 0, Counter[str]()
        for name in kernel.nodes:
            leaf = self._leaves.get(name)
            if leaf is None or not leaf.body:
                continue
            times = self._elements((size for sizes in leaf.sizes for size in sizes), values) or 0
            for operation in _OPERATION.findall(self.join.text(leaf.body)):
                if operation in _NO_WORK:
                    continue
                total += times
                if operation.removeprefix("libdevice_") in FUNCTIONS:
                    functions[operation.removeprefix("libdevice_")] += times
        return total, dict(functions)


Work = TypeVar("Work", bound=GraphWork)


def recorded_graphs(recording: Recording, kind: type[Work]) -> dict[str, Work]:
    """Return all graphs of a recording, by the file of the wrapper."""
    return {
        graph.wrapper_path: kind(GraphJoin(recording, compile_, graph))
        for compile_ in recording.compiles
        for graph in compile_.inductor
        if graph.wrapper_path
    }


def _value(size: Any, values: Mapping[str, int]) -> int:
    """Return the value of a size; raise ValueError if it is unknown."""
    found = number_of(str(size), values)
    if found is None:
        raise ValueError(size)
    return found
