"""Python wrappers: kernel calls, rewriting at load time, and the memory plan.

A rewritten wrapper calls our functions between its own statements, to report the results of
kernels, to time them, or to report the memory of its variables. The memory plan is derived from the
text alone.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from inductoscope.torch_facts.index_expressions import numbers_of, type_width
from inductoscope.torch_facts.log_choices import split_arguments

_NO_KERNELS = (
    "assert_",
    "empty_strided",
    "reinterpret_tensor",
    "args.clear",
    "len",
    "as_strided",
    "get_raw_stream",
    "torch.cuda.set_device",
    "inductoscope_",
)


def is_run_by_wrapper(function: ast.FunctionDef) -> bool:
    """Check whether a function calls kernels: the entry, or a graph partition."""
    return function.name == "call" or function.name.startswith("partition")


def kernel_call(statement: ast.stmt) -> tuple[str, ast.Call] | None:
    """Return the kernel that a statement calls and the call; None if it calls none."""
    if not isinstance(statement, (ast.Expr, ast.Assign)) or not isinstance(
        statement.value, ast.Call
    ):
        return None
    name = ast.unparse(statement.value.func)
    if name.startswith(_NO_KERNELS):
        return None
    return name.removesuffix(".run"), statement.value


_RUNS = re.compile(r"^[ \t]*(?:class Runner|def call)\b", re.MULTILINE)
_RETURNED = re.compile(r"^\s*return \((.*)\)\s*$")
BUFFER_NAME = re.compile(r"\b(?:buf\d+|arg\w+|primals\w+)\b")


def start_of_run(text: str) -> int:
    """Return where the code that runs the graph begins; the length of the text if nowhere."""
    found = _RUNS.search(text)
    return found.start() if found else len(text)


def outputs_in_python(lines: Iterable[str]) -> dict[int, str]:
    """Map output positions of a Python wrapper to the buffers returned."""
    returned = next(filter(None, map(_RETURNED.match, lines)), None)
    # A size may hold a comparison, whose sign is no bracket.
    entries = split_arguments(re.sub("[<>]", " ", returned[1])) if returned else ()
    names = ((place, BUFFER_NAME.search(entry)) for place, entry in enumerate(entries))
    return {place: name[0] for place, name in names if name}


_SOURCE_NODES = re.compile(
    r"# Topologically Sorted Source Nodes: \[(?P<nodes>[^\]]*)\]"
    r"(?:, Original ATen: \[(?P<aten>[^\]]*)\])?"
)


def nodes_of_kernel(text: str, kernel: str) -> tuple[list[str], list[str]]:
    """Return a kernel's FX nodes and ATen operations, from the comment above its definition."""
    before, definition, _ = text.partition(f"{kernel} = async_compile") if kernel else ("", "", "")
    comments = list(_SOURCE_NODES.finditer(before))
    if not comments or not definition:
        return [], []
    nodes, operations = (
        [name.strip() for name in (part or "").split(",") if name.strip()]
        for part in comments[-1].group("nodes", "aten")
    )
    return nodes, operations


class _Rewriter(ast.NodeTransformer):
    """A transformer that changes all statements of kernel-calling functions, nested ones too."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if is_run_by_wrapper(node):
            self.change(node)
        return node

    def change(self, function: ast.FunctionDef) -> None:
        function.body = self.changed(function.body)

    def changed(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements with the additions around each."""
        found: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, (ast.With, ast.If, ast.For)):
                statement.body = self.changed(statement.body)
                if isinstance(statement, ast.If):
                    statement.orelse = self.changed(statement.orelse)
                found.append(statement)
            else:
                found += self.around(statement)
        return found

    def around(self, statement: ast.stmt) -> list[ast.stmt]:
        """Return a statement with the additions before and after it."""
        raise NotImplementedError


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def _by_name(names: Iterable[str]) -> str:
    """Format a dictionary display that maps the names of variables to their values."""
    return f"{{{', '.join(f'{name!r}: {name}' for name in names)}}}"


@contextlib.contextmanager
def exchanged(module: Any, code: types.CodeType, names: dict[str, Any]) -> Iterator[None]:
    """Swap the code of a loaded wrapper's functions for rewritten code, then restore it.

    All existing references to the functions then call the rewritten code.
    """
    with contextlib.ExitStack() as stack:
        for function, before in exchange(module, code, names):
            stack.callback(setattr, function, "__code__", before)
        yield


def exchange(
    module: Any, code: types.CodeType, names: dict[str, Any]
) -> list[tuple[types.FunctionType, types.CodeType]]:
    """Swap the code of a loaded wrapper's functions for rewritten code, which uses `names`.

    Returns the functions with their previous code.
    """
    vars(module).update(names)
    codes, found = _codes_of_functions(code), []
    for name, function in _functions_of(module).items():
        if name in codes:
            found.append((function, function.__code__))
            function.__code__ = codes[name]
    return found


def replace_functions(module: Any, path: str, code: types.CodeType, names: dict[str, Any]) -> None:
    """Execute the rewritten wrapper and make a module that was just loaded call it."""
    fresh = types.ModuleType(module.__name__)
    fresh.__dict__.update(names, __file__=path)
    exec(code, fresh.__dict__)
    for name in ("call", "runner", "Runner", "recursively_apply_fns"):
        if name in fresh.__dict__:
            setattr(module, name, fresh.__dict__[name])


@contextlib.contextmanager
def exchanged_entry(module: Any, path: str, text: str) -> Iterator[None]:
    """Compile the C++ code in `text` and make a loaded module call it while active."""
    fresh = types.ModuleType(module.__name__)
    fresh.__dict__["__file__"] = path
    exec(compile(text, path, "exec"), fresh.__dict__)
    cells = module.call.__closure__ or ()
    own = [cell for cell in cells if cell.cell_contents is module.inductor_entry]
    for cell in own:
        cell.cell_contents = fresh.inductor_entry
    try:
        yield
    finally:
        for cell in own:
            cell.cell_contents = module.inductor_entry


def _codes_of_functions(code: types.CodeType) -> dict[str, types.CodeType]:
    found: dict[str, types.CodeType] = {}
    for item in code.co_consts:
        if isinstance(item, types.CodeType):
            inner = {f"{item.co_name}.{name}": c for name, c in _codes_of_functions(item).items()}
            found |= {item.co_name: item, **inner}
    return found


def _functions_of(module: Any) -> dict[str, types.FunctionType]:
    """Return the functions of a wrapper that call kernels."""
    runner = vars(getattr(module, "Runner", object)).get("call")
    found = {"Runner.call": runner, **vars(module)}
    return {
        name: value
        for name, value in found.items()
        if isinstance(value, types.FunctionType)
        and (name in ("call", "Runner.call") or name.startswith("partition"))
    }


# --- A Python wrapper rewritten so that it reports what it does -----------------------------------
#
#     inductoscope_before('cpp_fused_0')
#     cpp_fused_0(arg0_1, buf0)
#     inductoscope_after('cpp_fused_0', {'buf0': buf0})

# Names that a rewritten wrapper uses; generated wrappers never contain them.
BEGIN, BEFORE, AFTER = "inductoscope_begin", "inductoscope_before", "inductoscope_after"


@dataclass(frozen=True)
class ReportingCode:
    code: types.CodeType
    # The buffers of each call of a kernel, and those that each kernel takes or makes.
    reports: list[list[str]]
    buffers: dict[str, list[str]]


def reporting_wrapper(path: str, text: str, written: Sequence[str] = ()) -> ReportingCode:
    """Instrument a wrapper. Inputs that are `written` are reported like buffers."""
    reporting = _Reporting(written)
    changed = ast.fix_missing_locations(reporting.visit(ast.parse(text)))
    return ReportingCode(compile(changed, path, "exec"), reporting.reports, reporting.buffers)


class _Reporting(_Rewriter):
    """A rewriter that announces every kernel call and passes on the buffers it received."""

    def __init__(self, written: Sequence[str]) -> None:
        self.reports: list[list[str]] = []
        self.buffers: dict[str, list[str]] = {}
        self._written = written
        self._last_kernel = ""

    def change(self, function: ast.FunctionDef) -> None:
        begin = _parsed(f"{BEGIN}(args)") if function.name == "call" else []
        function.body = [*begin, *self.changed(function.body)]

    def around(self, statement: ast.stmt) -> list[ast.stmt]:
        kernel, buffers = self._call(statement)
        before = _parsed(f"{BEFORE}({kernel!r})") if kernel else []
        if kernel:
            self._last_kernel = kernel
            self.buffers.setdefault(kernel, []).extend(buffers)
        if kernel:
            self.reports.append(list(buffers))
        elif buffers:
            self.reports[-1].extend(buffers)
        after = f"{AFTER}({self._last_kernel!r}, {_by_name(buffers)})"
        return [*before, statement, *(_parsed(after) if buffers else [])]

    def _call(self, statement: ast.stmt) -> tuple[str, list[str]]:
        """The kernel that a statement calls, and the buffers that it gets or returns."""
        targets = statement.targets if isinstance(statement, ast.Assign) else []
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript):
            return "", self._buffers(targets)  # One of several results.
        found = kernel_call(statement)
        if found is None:
            return "", []
        name, call = found
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        return name, self._buffers([*given, *targets])

    def _buffers(self, parts: Iterable[ast.AST]) -> list[str]:
        names = {name for part in parts for name in _names(part)}
        return sorted(name for name in names if name.startswith("buf") or name in self._written)


# --- A Python wrapper rewritten so that it takes the time around every kernel that it calls -------
#
#     inductoscope_from = inductoscope_clock()
#     cpp_fused_0(arg0_1, buf0)
#     inductoscope_times += (1, inductoscope_from, inductoscope_clock())
#
# Nothing else is done between kernels: the times are handed over when the wrapper returns.

CLOCK, OPENED, ENDED = "inductoscope_clock", "inductoscope_opened", "inductoscope_ended"
_TIMES, _FROM = "inductoscope_times", "inductoscope_from"

_SIZE = re.compile(r"[su]\d+")
# Graph partitions, which time their kernels themselves.
_PARTS = ("self.partitions", "partition")
_ON_GPU = re.compile(r"\bget_raw_stream\b|\btorch\.cuda\._DeviceGuard\b")


@dataclass(frozen=True)
class KernelLine:
    line: int
    kernel: str


@dataclass(frozen=True)
class TimedWrapper:
    code: types.CodeType
    lines: tuple[KernelLine, ...]
    on_gpu: bool


def timed_wrapper(path: str, text: str) -> TimedWrapper | None:
    """Insert timing around a wrapper's kernel calls; None if it calls none from Python.

    Each function that runs kernels asks `OPENED(is_entry)` for the list to note times in. The entry
    hands it over: `ENDED(times, sizes)`.
    """
    timing = _Timing(on_gpu=_ON_GPU.search(text) is not None)
    changed = ast.fix_missing_locations(timing.visit(ast.parse(text)))
    if not timing.lines:
        return None
    return TimedWrapper(compile(changed, path, "exec"), tuple(timing.lines), timing.on_gpu)


class _Timing(_Rewriter):
    """A rewriter that adds timing to every function that calls kernels."""

    def __init__(self, *, on_gpu: bool) -> None:
        self.on_gpu = on_gpu
        self.lines: list[KernelLine] = []
        self._ended = ""

    def change(self, function: ast.FunctionDef) -> None:
        is_entry = function.name == "call"
        # At the top level of the function, so that they always have a value.
        names = {name for statement in function.body for name in _assigned_names(statement)}
        sizes = sorted(name for name in names if _SIZE.fullmatch(name))
        self._ended = f"{ENDED}({_TIMES}, {_by_name(sizes)})" if is_entry else ""
        opened = _parsed(f"{_TIMES} = {OPENED}({is_entry})")
        function.body = [*opened, *self.changed(function.body)]

    def around(self, statement: ast.stmt) -> list[ast.stmt]:
        if isinstance(statement, ast.Return):
            return [*_parsed(self._ended), statement]
        call = kernel_call(statement)
        if call is None or call[0].startswith(_PARTS):
            return [statement]
        number = len(self.lines)
        self.lines.append(KernelLine(statement.lineno, call[0]))
        before, after = (f"{name}({number})\n" * self.on_gpu for name in (BEFORE, AFTER))
        return [
            *_parsed(f"{before}{_FROM} = {CLOCK}()"),
            statement,
            *_parsed(f"{_TIMES} += ({number}, {_FROM}, {CLOCK}())\n{after}"),
        ]


# --- A Python wrapper rewritten so that it says where each of its variables lies in memory --------
#
#     buf0 = empty_strided_cpu((1024, 256), (256, 1), torch.float32)
#     inductoscope_named({'buf0': buf0})
#
# Allocations, their order and their lifetimes stay unchanged.

ENTERED, NAMED, LEFT = "inductoscope_entered", "inductoscope_named", "inductoscope_left"
_RESULT = "inductoscope_result"


def named_wrapper(path: str, text: str) -> types.CodeType | None:
    """Make a wrapper report the names of its memory; None if it runs nothing from Python."""
    naming = _Naming()
    changed = ast.fix_missing_locations(naming.visit(ast.parse(text)))
    return compile(changed, path, "exec") if naming.has_entry else None


class _Naming(_Rewriter):
    """A rewriter that adds a report after every assignment in functions that call kernels."""

    def __init__(self) -> None:
        self.has_entry = self._is_entry = False

    def change(self, function: ast.FunctionDef) -> None:
        self._is_entry = function.name == "call"
        self.has_entry |= self._is_entry
        entered = _parsed(f"{ENTERED}()") if self._is_entry else []
        function.body = [*entered, *self.changed(function.body)]

    def around(self, statement: ast.stmt) -> list[ast.stmt]:
        if self._is_entry and isinstance(statement, ast.Return) and statement.value is not None:
            kept = ast.Assign([ast.Name(_RESULT, ast.Store())], statement.value)
            statement.value = ast.Name(_RESULT, ast.Load())
            return [kept, *_parsed(f"{LEFT}({_RESULT})"), statement]
        names = _assigned_names(statement)
        return [statement, *(_parsed(f"{NAMED}({_by_name(names)})") if names else [])]


def _assigned_names(statement: ast.stmt) -> list[str]:
    if not isinstance(statement, ast.Assign):
        return []
    targets = [
        part
        for target in statement.targets
        for part in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])
    ]
    return [target.id for target in targets if isinstance(target, ast.Name)]


# --- Sizes of memory from what texts say of it ----------------------------------------------------


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Return the number of elements between the first and the last, inclusive; 0 if empty."""
    if math.prod(size) == 0:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=False))


# --------------------------------------------------------------------------------------------------
# The memory plan of a wrapper, from its text alone: which buffers are live at the same time.
#
# Every statement allocates, takes over or frees a buffer, or runs a kernel. Comparing the plan with
# a measurement tells whether this model of memory is right.

# Returns the bytes of a buffer whose size no statement gives; None if unknown.
BytesOf = Callable[[str], int | None]

_ALLOCATES = re.compile(r"empty_strided(?:_\w+)?")
_VIEWS = ("reinterpret_tensor", "as_strided")
_LIBRARY = ("extern_kernels.", "torch.ops.", "aten.")


@dataclass(frozen=True)
class PlannedBuffer:
    """Memory that a wrapper holds: a graph input, or an allocation of its own."""

    name: str
    bytes: int
    is_input: bool = False


@dataclass(frozen=True)
class MissedReuse:
    """A buffer that was allocated although an equally large one died in the same kernel."""

    new: str
    old: str
    bytes: int
    kernel: str
    reason: str


@dataclass(frozen=True)
class GraphPlan:
    """The memory plan of a wrapper: its peak and the buffers live then, beyond its inputs."""

    # Bytes above those live at the start.
    peak: int = 0
    inputs: tuple[str, ...] = ()
    # The names of the buffers live at the peak, inputs included.
    at_peak: tuple[str, ...] = ()
    missed: tuple[MissedReuse, ...] = ()
    # Buffers whose size the text does not give.
    unknown: tuple[str, ...] = ()


@dataclass
class _Held:
    """Live memory of a wrapper, tracked statement by statement."""

    values: Mapping[str, int]
    bytes_of: BytesOf
    # Inputs without other references: deleting them frees their memory.
    own: frozenset[str]
    # The memory that each variable refers to.
    memory: dict[str, PlannedBuffer] = field(default_factory=dict)
    now: int = 0
    peak: int = 0
    at_peak: tuple[str, ...] = ()
    inputs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    missed: list[MissedReuse] = field(default_factory=list)
    # The last kernel, and the variables that it read or wrote.
    last: tuple[str, frozenset[str]] = ("", frozenset())
    filled: dict[str, PlannedBuffer] = field(default_factory=dict)
    # Allocated, but not yet used by any kernel.
    fresh: dict[str, PlannedBuffer] = field(default_factory=dict)

    def run(self, kernel: str, touched: frozenset[str]) -> None:
        self.last = kernel, touched
        self.filled = {name: self.fresh.pop(name) for name in touched if name in self.fresh}

    def allocate(self, name: str, buffer: PlannedBuffer) -> None:
        """Give a variable memory of its own."""
        self.release(name)
        self.memory[name] = buffer
        self.fresh[name] = buffer
        self.now += buffer.bytes
        if self.now > self.peak:
            self.peak = self.now
            self.at_peak = tuple(dict.fromkeys(b.name for b in self.memory.values() if b.bytes))

    def release(self, name: str) -> None:
        """Drop a variable; free its memory once no other variable refers to the memory."""
        buffer = self.memory.pop(name, None)
        if buffer is None or any(other is buffer for other in self.memory.values()):
            return
        if not buffer.is_input or buffer.name in self.own:
            self.now -= buffer.bytes


def plan_of(
    text: str, values: Mapping[str, int], bytes_of: BytesOf, own: frozenset[str] = frozenset()
) -> GraphPlan | None:
    """Compute the memory plan of a Python wrapper for these sizes; None if it cannot be parsed.

    `own` names inputs that only the graph holds a reference to.
    """
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    functions = [n for n in ast.walk(module) if isinstance(n, ast.FunctionDef)]
    entry = next((f for f in functions if f.name == "call" and is_run_by_wrapper(f)), None)
    if entry is None:
        return None
    held = _Held(values, bytes_of, own)
    _follow(entry.body, held)
    return GraphPlan(
        held.peak,
        tuple(held.inputs),
        held.at_peak,
        tuple(m for m in held.missed if {m.new, m.old} <= set(held.at_peak)),
        tuple(held.unknown),
    )


def _follow(body: Sequence[ast.stmt], held: _Held) -> None:
    for statement in body:
        if isinstance(statement, (ast.With, ast.If)):
            _follow(statement.body, held)
        elif isinstance(statement, ast.Delete):
            for target in statement.targets:
                if isinstance(target, ast.Name):
                    _note_missed(held, target.id)
                    held.release(target.id)
        elif isinstance(statement, ast.Assign):
            _assign(statement, held)
        call = kernel_call(statement)
        if call is not None:
            held.run(call[0], frozenset(_names(call[1])))


def _assign(statement: ast.Assign, held: _Held) -> None:
    target, value = statement.targets[0], statement.value
    if isinstance(value, ast.Name) and value.id == "args":
        for element in target.elts if isinstance(target, (ast.Tuple, ast.List)) else ():
            if isinstance(element, ast.Name):
                held.inputs.append(element.id)
                own = held.bytes_of(element.id) or 0
                held.memory[element.id] = PlannedBuffer(element.id, own, is_input=True)
        return
    if not isinstance(target, ast.Name):
        return
    name = target.id
    if isinstance(value, ast.Call) and _ALLOCATES.fullmatch(ast.unparse(value.func)):
        _known(held, name, _allocated_bytes(value, held.values))
        return
    taken = next((n for n in _names(value) if n in held.memory), None)
    # A library call returns new memory.
    is_call = isinstance(value, ast.Call)
    if taken is not None and not (is_call and not ast.unparse(value).startswith(_VIEWS)):
        held.memory[name] = held.memory[taken]
    elif isinstance(value, ast.Call):
        _known(held, name, held.bytes_of(name))


def _known(held: _Held, name: str, size: int | None) -> None:
    if size is None:
        held.unknown.append(name)
        return
    held.allocate(name, PlannedBuffer(name, size))


def _names(node: ast.AST) -> Iterator[str]:
    return (part.id for part in ast.walk(node) if isinstance(part, ast.Name))


# --- sizes ----------------------------------------------------------------------------------------


def _allocated_bytes(call: ast.Call, values: Mapping[str, int]) -> int | None:
    if len(call.args) < 3:
        return None
    size, stride = (numbers_of(_parts(argument), values) for argument in call.args[:2])
    itemsize = type_width(ast.unparse(call.args[2]))
    if size is None or stride is None or itemsize is None:
        return None
    return extent(size, stride) * itemsize


def _parts(node: ast.expr) -> list[str]:
    parts = node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]
    return [ast.unparse(part) for part in parts]


# --- reuse that was missed ------------------------------------------------------------------------


def _note_missed(held: _Held, old: str) -> None:
    """Record a missed reuse: a buffer dies in the kernel that fills a new one of equal size."""
    kernel, touched = held.last
    gone = held.memory.get(old)
    if gone is None or old not in touched or gone.bytes == 0:
        return
    for name in touched:
        new = held.filled.get(name)
        if new is None or new is gone or new.bytes != gone.bytes or name not in held.memory:
            continue
        held.filled.pop(name)
        reason = _why_not(kernel, gone)
        held.missed.append(MissedReuse(new.name, gone.name, new.bytes, kernel, reason))
        return


def _why_not(kernel: str, old: PlannedBuffer) -> str:
    if old.is_input:
        return "it is an input of the graph, which is not the graph's to overwrite"
    if kernel.startswith(_LIBRARY):
        return "a library's kernel does not write over what it reads"
    return "why torch did not generate the kernel so that it writes over it is not known"
