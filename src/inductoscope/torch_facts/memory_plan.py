"""Sizes of memory from what texts say of it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.torch_facts.index_expressions import (
    NotUnderstood,
    NoValue,
    read_expression,
    value_of,
)
from inductoscope.torch_facts.tensor_sizes import type_width
from inductoscope.torch_facts.wrapper_code import is_run_by_wrapper, kernel_call


def number_of(text: str, values: Mapping[str, int]) -> int | None:
    """The number that an expression is with these sizes; None where that is not known."""
    if text.isdecimal():
        return int(text)
    try:
        return value_of(read_expression(text), values)
    except (NoValue, NotUnderstood, ValueError):
        return None


def numbers_of(texts: Sequence[str], values: Mapping[str, int]) -> list[int] | None:
    """The same for each of several; None where one of them is not known."""
    found = [number_of(text, values) for text in texts]
    known = [number for number in found if number is not None]
    return known if len(known) == len(found) else None


def extent(size: Sequence[int], stride: Sequence[int]) -> int:
    """Elements from the first to the last; none if there is none."""
    if math.prod(size) == 0:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=False))


# --------------------------------------------------------------------------------------------------
# What a wrapper says of memory before it runs: which buffers it holds at once, by its text alone.
#
# Every statement allocates, takes over, lets go or runs something; the sum of what is held is the
# memory plan. Measured beside it, the plan says whether this model of memory is right.

# The bytes of a buffer that no statement gives the size of; None where that is not known.
BytesOf = Callable[[str], int | None]

_ALLOCATES = re.compile(r"empty_strided(?:_\w+)?")
_LIBRARY = ("extern_kernels.", "torch.ops.", "aten.")


@dataclass(frozen=True)
class PlannedBuffer:
    """Memory that a wrapper holds: a graph's input, or what it allocates."""

    name: str
    bytes: int
    is_input: bool = False
    shape: str = ""


@dataclass(frozen=True)
class MissedReuse:
    """A buffer that was allocated while another one, as large, was read for the last time."""

    new: str
    old: str
    bytes: int
    kernel: str
    reason: str


@dataclass(frozen=True)
class GraphPlan:
    """What a wrapper holds at once, beyond what it is given."""

    # Bytes above those at its beginning: at its highest and in the end.
    peak: int = 0
    at_end: int = 0
    inputs: tuple[str, ...] = ()
    # The names of what is held at the peak, its inputs included.
    at_peak: tuple[str, ...] = ()
    missed: tuple[MissedReuse, ...] = ()
    # Buffers whose size the text does not give.
    unknown: tuple[str, ...] = ()


@dataclass
class _Held:
    """What a wrapper holds, statement by statement."""

    values: Mapping[str, int]
    bytes_of: BytesOf
    # Inputs that nobody else holds: letting go of them frees their memory.
    own: frozenset[str]
    # By variable: the memory that it stands for.
    memory: dict[str, PlannedBuffer] = field(default_factory=dict)
    now: int = 0
    peak: int = 0
    at_peak: tuple[str, ...] = ()
    inputs: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    missed: list[MissedReuse] = field(default_factory=list)
    # What the last kernel read and wrote, until the next one runs.
    last: tuple[str, frozenset[str]] = ("", frozenset())
    filled: dict[str, PlannedBuffer] = field(default_factory=dict)
    # Allocated, and not yet seen by any kernel.
    fresh: dict[str, PlannedBuffer] = field(default_factory=dict)

    def run(self, kernel: str, touched: frozenset[str]) -> None:
        """A kernel runs on these variables."""
        self.last = kernel, touched
        self.filled = {name: self.fresh.pop(name) for name in touched if name in self.fresh}

    def allocate(self, name: str, buffer: PlannedBuffer) -> None:
        """A variable gets memory of its own."""
        self.release(name)
        self.memory[name] = buffer
        self.fresh[name] = buffer
        self.now += buffer.bytes
        if self.now > self.peak:
            self.peak = self.now
            self.at_peak = tuple(dict.fromkeys(b.name for b in self.memory.values() if b.bytes))

    def release(self, name: str) -> None:
        """A variable is let go; its memory is free once no other stands for it."""
        buffer = self.memory.pop(name, None)
        if buffer is None or any(other is buffer for other in self.memory.values()):
            return
        if not buffer.is_input or buffer.name in self.own:
            self.now -= buffer.bytes


def plan_of(
    text: str, values: Mapping[str, int], bytes_of: BytesOf, own: frozenset[str] = frozenset()
) -> GraphPlan | None:
    """The plan of a Python wrapper with these sizes; None where it cannot be read.

    `own` names inputs that nobody but the graph holds.
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
        held.now,
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
    if isinstance(target, (ast.Tuple, ast.List)):
        if isinstance(value, ast.Name) and value.id == "args":
            _take_inputs(target.elts, held)
        return
    if not isinstance(target, ast.Name):
        return
    name = target.id
    if isinstance(value, ast.Name) and value.id == "args":
        return
    if isinstance(value, ast.Call) and _ALLOCATES.fullmatch(ast.unparse(value.func)):
        size = _allocated_bytes(value, held.values)
        _known(held, name, size, ast.unparse(value.args[0]) if value.args else "")
        return
    taken = next((n for n in _names(value) if n in held.memory), None)
    if taken is not None and not _makes_memory(value):
        held.memory[name] = held.memory[taken]
    elif isinstance(value, ast.Call):
        _known(held, name, held.bytes_of(name), "")


def _makes_memory(value: ast.expr) -> bool:
    """Whether a call makes new memory out of its arguments, as a library's does."""
    if not isinstance(value, ast.Call):
        return False
    return not ast.unparse(value.func).startswith(("reinterpret_tensor", "as_strided"))


def _take_inputs(targets: Sequence[ast.expr], held: _Held) -> None:
    for target in targets:
        if isinstance(target, ast.Name):
            held.inputs.append(target.id)
            size = held.bytes_of(target.id) or 0
            held.memory[target.id] = PlannedBuffer(target.id, size, is_input=True)


def _known(held: _Held, name: str, size: int | None, shape: str) -> None:
    if size is None:
        held.unknown.append(name)
        return
    held.allocate(name, PlannedBuffer(name, size, shape=shape))


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
    """A buffer is let go right after a kernel that read it, and that filled one made for it."""
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
