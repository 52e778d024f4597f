"""Calls a package that is right at the program's sizes at other sizes that its export admits.

Nothing is compiled: the existing package is called in a fork, with the program's own values
repeated or cut off, and compared with the exported program in eager. One size at a time is
changed: to both ends of its range, and to the ends of vectors and tiles.
"""

from __future__ import annotations

import itertools
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import GraphModule

from inductoscope.doctor.failure import HANG, Failure
from inductoscope.inside.compare.beside_eager import call_beside_eager
from inductoscope.inside.compare.graphs import as_function, input_names
from inductoscope.inside.compare.reference import Case
from inductoscope.inside.program_settings import MarkedSize
from inductoscope.inside.search.candidate import Candidate
from inductoscope.inside.search.failure_signature import failure_of_comparison
from inductoscope.inside.search.forks import Forks
from inductoscope.inside.search.oracle import Oracle

# A larger tensor takes long to compute, and shows nothing else.
_LARGEST = 4096
_MOST_ELEMENTS = 1 << 24
# Sizes around the widths of CPU vectors and small tiles.
_AROUND = (17, 15, 16, 33, 3)
_MOST_FOR_ONE = 6
_MOST = 18
# Seconds for all of them: a healthy program must not wait long.
_SECONDS = 5.0
_ENDLESS = 60.0
_TO_COMPILE = 180.0


@dataclass(frozen=True)
class OtherSize:
    """Inputs with one size changed, and the name and value of that size."""

    symbol: str
    value: int
    text: str  # which size it is, and what was admitted
    inputs: tuple[Any, ...]

    @property
    def name(self) -> str:
        return f"{self.symbol} = {self.value}"


@dataclass(frozen=True)
class SizesCalled:
    """The sizes that were called, and the first that is wrong."""

    called: tuple[str, ...] = ()  # names
    wrong: OtherSize | None = None

    def failure_of(self, candidate: Candidate | None) -> Failure | None:
        """Return the failure at the wrong size, if a newly compiled package fails there too."""
        if candidate is None:
            return None
        failure = Oracle(Forks(workers=1, seconds=_TO_COMPILE)).failure(candidate)
        # A busy machine may not be through with the compile in time.
        return None if failure is None or failure.kind == HANG else failure


def call_at_other_sizes(
    module: GraphModule,
    compiled: Callable[..., Any],
    arguments: Sequence[Any],
    admits: Callable[[Sequence[Any]], bool],
) -> SizesCalled:
    """In a fork, call the package at each other size, up to the first wrong one."""

    def sizes() -> Iterator[OtherSize]:
        """Yield one size at a time, because all inputs together may not fit into memory."""
        admitted = (size for size in other_sizes(module, arguments) if admits(size.inputs))
        return itertools.islice(admitted, _MOST)

    if next(sizes(), None) is None:
        return SizesCalled()
    forks = Forks(workers=1, seconds=_ENDLESS)

    def work() -> list[Any]:
        until = time.monotonic() + _SECONDS
        called: list[str] = []
        for size in sizes():
            if time.monotonic() > until:
                break
            answer = is_right(module, compiled, size.inputs)
            if answer is False:
                return [called, size.name]
            called += [size.name] if answer else []
        return [called, ""]

    answer = forks.ask(work)
    if answer.signal is not None:
        # The fork died: use one fork per size to find the fatal one.
        wrong = next((s for s in sizes() if _dies(forks, module, compiled, s.inputs)), None)
        return SizesCalled((), wrong)
    if not answer.is_done:
        return SizesCalled()  # The fork ran out of time.
    called, name = answer.result
    wrong = next((size for size in sizes() if size.name == name), None) if name else None
    return SizesCalled(tuple(called), wrong)


def is_right(
    module: GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any]
) -> bool | None:
    """Compare with eager; None if eager fails too, or torch's NaN check is right to raise."""
    case = Case(as_function(module), list(inputs), False)
    if case.eager_error is not None:
        return None
    called = call_beside_eager(case, compiled, input_names(module))
    if called.refusal is not None:
        return None
    return called.comparison is not None and failure_of_comparison(called.comparison) is None


def _dies(
    forks: Forks, module: GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any]
) -> bool:
    """Check whether only the package kills the process; SIGKILL is taken for out of memory."""
    case = Case(as_function(module), list(inputs), False)
    if not forks.ask(lambda: case.eager_error is None).is_done:
        return False
    died_of = forks.ask(lambda: is_right(module, compiled, inputs)).signal
    return died_of not in (None, signal.SIGKILL)


# --- which sizes ----------------------------------------------------------------------------------


def other_sizes(module: GraphModule, arguments: Sequence[Any]) -> Iterator[OtherSize]:
    """Yield inputs with one unusual size at a time, as far as the export's guards admit it."""
    nodes = module.graph.find_nodes(op="placeholder")
    forms = [node.meta.get("val") for node in nodes]
    if len(forms) != len(arguments) or any(isinstance(form, torch.SymInt) for form in forms):
        return
    # The size of each symbol in this call, and the dimension that it names.
    usual: dict[Any, int] = {}
    names: dict[Any, str] = {}
    wanted, environment = set(), None
    for node, form, value in zip(nodes, forms, arguments, strict=True):
        for dimension, (size, given) in enumerate(zip(_shape(form), _shape(value), strict=False)):
            if isinstance(size, torch.SymInt):
                expression, environment = size.node.expr, size.node.shape_env
                wanted |= expression.free_symbols
                if expression.is_symbol and expression not in usual:
                    usual[expression] = int(given)
                    names[expression] = f"dimension {dimension} of input {node.name}"
    if environment is None or wanted != set(usual):
        return  # A size cannot be read from the call.
    for symbol, value in usual.items():
        low, high = _bounds_of(environment, symbol)
        for other in _values(low or 0, high, value):
            sizes = {**usual, symbol: other}
            inputs = _made(forms, arguments, sizes) if _is_admitted(environment, sizes) else None
            if inputs is not None:
                admitted = f"{low or 0} or more" if high is None else f"{low or 0} to {high}"
                text = f"{symbol} ({names[symbol]}) = {other}; the export admits {admitted}"
                yield OtherSize(str(symbol), other, text, inputs)


def _values(low: int, high: int | None, usual: int) -> list[int]:
    """Return sizes to try: both ends of the range first, then their neighbours and vector tails."""
    ends = [low] if high is None or high > _LARGEST else [low, high, high - 1]
    every = dict.fromkeys([*ends, *_AROUND, low + 1])
    inside = [v for v in every if v >= low and (high is None or v <= high) and v != usual]
    return inside[:_MOST_FOR_ONE]


def _shape(value: Any) -> Sequence[Any]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _bounds_of(environment: Any, symbol: Any) -> tuple[int | None, int | None]:
    """Return the range of a symbol; None for an infinite end, or torch's integer infinity."""
    bounds = environment.var_to_range.get(symbol)
    texts = [str(getattr(bounds, end, "")) for end in ("lower", "upper")]
    low, high = (int(t) if t.lstrip("-").isdecimal() and int(t) < 1 << 62 else None for t in texts)
    return low, high


def _is_admitted(environment: Any, sizes: Mapping[Any, int]) -> bool:
    """Check whether every guard holds; a guard that cannot be evaluated counts as broken."""
    return all(str(_with_sizes(guard.expr, sizes)) == "True" for guard in environment.guards)


def _with_sizes(expression: Any, sizes: Mapping[Any, int]) -> Any:
    return expression.xreplace({symbol: sympy.Integer(size) for symbol, size in sizes.items()})


def _made(
    forms: Sequence[Any], arguments: Sequence[Any], sizes: Mapping[Any, int]
) -> tuple[Any, ...] | None:
    """Build tensors of these sizes from the program's own values; None if that fails."""
    found = []
    for form, value in zip(forms, arguments, strict=True):
        is_open = any(isinstance(size, torch.SymInt) for size in _shape(form))
        made = _resized(form, value, sizes) if is_open else value
        if is_open and made is None:
            return None
        found.append(made)
    return tuple(found)


def _resized(form: Any, value: torch.Tensor, sizes: Mapping[Any, int]) -> torch.Tensor | None:
    shape, strides = (_computed(each, sizes) for each in (form.shape, form.stride()))
    if shape is None or strides is None or math.prod(shape) > _MOST_ELEMENTS:
        return None
    if value.numel() == 0:
        return torch.zeros(shape, dtype=value.dtype, device=value.device)
    made = torch.empty_strided(shape, strides, dtype=value.dtype, device=value.device)
    for dimension, size in enumerate(shape):
        places = torch.arange(size, device=value.device) % value.shape[dimension]
        value = value.index_select(dimension, places)
    return made.copy_(value)


def _computed(sizes: Any, values: Mapping[Any, int]) -> list[int] | None:
    found = [
        str(_with_sizes(size.node.expr, values) if isinstance(size, torch.SymInt) else size)
        for size in sizes
    ]
    return [*map(int, found)] if all(map(str.isdecimal, found)) else None


# --- Sizes that an exported program leaves open, as marks on its inputs ---------------------------


def exported_sizes(module: GraphModule) -> tuple[MarkedSize, ...]:
    """Return a mark for every dynamic size.

    The first input with a size carries its bounds; other inputs with the same size follow it.
    """
    known: set[str] = set()
    found = []
    for node in module.graph.find_nodes(op="placeholder"):
        for dimension, size in enumerate(_shape(node.meta.get("val"))):
            if not isinstance(size, torch.SymInt):
                continue
            name = str(size.node.expr)
            if name in known or not name.isidentifier():
                found.append(MarkedSize(node.name, dimension, "maybe_mark_dynamic"))
                continue
            known.add(name)
            bounds = _bounds_of(size.node.shape_env, size.node.expr)
            found.append(MarkedSize(node.name, dimension, "mark_dynamic", *bounds))
    return tuple(found)
