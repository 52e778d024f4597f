"""A package that is right at the program's own sizes, called at others that its export admits.

The package is there, so that nothing is compiled: it is called in a fork, with the program's own
values repeated or cut off, and compared with the exported program in eager. One size at a time
leaves its usual value: to both ends of its range, and to where vectors and tiles end.
"""

from __future__ import annotations

import itertools
import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

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
# Where vectors of a CPU and small tiles end.
_AROUND = (17, 15, 16, 33, 3)
_MOST_FOR_ONE = 6
_MOST = 18
# Seconds for all of them: a healthy program must not wait long.
_SECONDS = 5.0
_ENDLESS = 60.0
_TO_COMPILE = 180.0


@dataclass(frozen=True)
class OtherSize:
    """Inputs with one size changed, and what that size is."""

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

    @property
    def text(self) -> str:
        """As part of a sentence."""
        return ", ".join(self.called)

    def failure_of(self, candidate: Candidate | None) -> Failure | None:
        """The failure there, if it is wrong as well when the package is made once more."""
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
    """Call it at every other size, up to the first that is wrong, in a fork."""

    def sizes() -> Iterator[OtherSize]:
        """One at a time: all of them together may be larger than the memory."""
        admitted = (size for size in other_sizes(module, arguments) if admits(size.inputs))
        return itertools.islice(admitted, _MOST)

    if next(sizes(), None) is None:
        return SizesCalled()
    forks = Forks(workers=1, seconds=_ENDLESS)

    def work() -> list[Any]:
        until = time.monotonic() + _SECONDS
        called: list[str] = []
        for number, size in enumerate(sizes()):
            if time.monotonic() > until:
                break
            answer = is_right(module, compiled, size.inputs)
            if answer is None:
                continue
            if not answer:
                return [called, number]
            called.append(size.name)
        return [called, None]

    answer = forks.ask(work)
    if not answer.is_done:
        if answer.signal is None:
            return SizesCalled()  # It only takes long.
        # It died: one fork for each, to find at which.
        wrong = next((s for s in sizes() if _dies(forks, module, compiled, s.inputs)), None)
        return SizesCalled((), wrong)
    called, number = answer.result
    wrong = None if number is None else next(itertools.islice(sizes(), number, None), None)
    return SizesCalled(tuple(called), wrong)


def is_right(
    module: GraphModule, compiled: Callable[..., Any], inputs: Sequence[Any]
) -> bool | None:
    """Whether it gives what eager gives; None if eager fails, or torch's check for NaN is right."""
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
    """Whether the package ends the process where eager does not; killed means out of memory."""
    case = Case(as_function(module), list(inputs), False)
    if not forks.ask(lambda: case.eager_error is None).is_done:
        return False
    died_of = forks.ask(lambda: is_right(module, compiled, inputs)).signal
    return died_of not in (None, signal.SIGKILL)


# --- which sizes ----------------------------------------------------------------------------------


def other_sizes(module: GraphModule, arguments: Sequence[Any]) -> Iterator[OtherSize]:
    """Inputs of every size to try, one unusual size at a time, admitted by the export's guards."""
    forms = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    usual = _usual(forms, arguments)
    environment = _environment(forms)
    if not usual or environment is None or len(forms) != len(arguments):
        return
    names = _named_dimensions(module, forms)
    for symbol, value in usual.items():
        bounds = environment.var_to_range.get(symbol)
        if bounds is None:
            continue
        low, high = _bound(bounds.lower) or 0, _bound(bounds.upper)
        for other in _values(low, high, value):
            sizes = {**usual, symbol: other}
            inputs = _made(forms, arguments, sizes) if _is_admitted(environment, sizes) else None
            if inputs is not None:
                admitted = f"{low} or more" if high is None else f"{low} to {high}"
                text = f"{symbol} ({names[symbol]}) = {other}; the export admits {admitted}"
                yield OtherSize(str(symbol), other, text, inputs)


def _values(low: int, high: int | None, usual: int) -> list[int]:
    """Both ends first: then what is next to them, and where vectors end."""
    is_small = high is not None and high <= _LARGEST
    ends = [low, high, high - 1] if is_small and high is not None else [low]
    every = dict.fromkeys([*ends, *_AROUND, low + 1])
    inside = [v for v in every if v >= low and (high is None or v <= high) and v != usual]
    return inside[:_MOST_FOR_ONE]


def _usual(forms: Sequence[Any], arguments: Sequence[Any]) -> dict[Any, int]:
    """The sizes of this call, by symbol; none if one of them cannot be read from it."""
    found: dict[Any, int] = {}
    wanted = set()
    for form, value in zip(forms, arguments, strict=False):
        for expression, size in zip(_shape(form), _shape(value), strict=False):
            if isinstance(expression, torch.SymInt):
                wanted |= expression.node.expr.free_symbols
                if expression.node.expr.is_symbol:
                    found.setdefault(expression.node.expr, int(size))
    return found if wanted and wanted == set(found) else {}


def _environment(forms: Sequence[Any]) -> Any:
    every = (size for form in forms for size in _shape(form) if isinstance(size, torch.SymInt))
    return next((size.node.shape_env for size in every), None)


def _named_dimensions(module: GraphModule, forms: Sequence[Any]) -> dict[Any, str]:
    nodes = module.graph.find_nodes(op="placeholder")
    found: dict[Any, str] = {}
    for node, form in zip(nodes, forms, strict=True):
        for dimension, size in enumerate(_shape(form)):
            if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                found.setdefault(size.node.expr, f"dimension {dimension} of input {node.name}")
    return found


def _shape(value: Any) -> Sequence[Any]:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else ()


def _bound(bound: Any) -> int | None:
    """A bound of torch's; None if it is infinite, also as a number close to the largest integer."""
    text = str(bound)
    return int(text) if text.lstrip("-").isdecimal() and int(text) < 1 << 62 else None


def _is_admitted(environment: Any, sizes: Mapping[Any, int]) -> bool:
    """Whether every guard holds; one that cannot be computed admits nothing."""
    return all(str(guard.expr.xreplace(_exact(sizes))) == "True" for guard in environment.guards)


def _exact(sizes: Mapping[Any, int]) -> dict[Any, Any]:
    import sympy

    return {symbol: sympy.Integer(size) for symbol, size in sizes.items()}


def _made(
    forms: Sequence[Any], arguments: Sequence[Any], sizes: Mapping[Any, int]
) -> tuple[Any, ...] | None:
    """The program's own values in tensors of these sizes."""
    found = []
    for form, value in zip(forms, arguments, strict=True):
        is_open = any(isinstance(size, torch.SymInt) for size in _shape(form))
        if isinstance(form, torch.SymInt) or (is_open and not isinstance(value, torch.Tensor)):
            return None
        made = _resized(form, value, sizes) if is_open else value
        if made is None:
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
    found = []
    for size in sizes:
        known = size.node.expr.xreplace(_exact(values)) if isinstance(size, torch.SymInt) else size
        if not str(known).isdecimal():
            return None
        found.append(int(known))
    return found


# --- Sizes that an exported program leaves open, as marks on its inputs ---------------------------


def exported_sizes(module: GraphModule) -> tuple[MarkedSize, ...]:
    """A mark for every size that may vary.

    The first input that has a size says within which bounds; others with the same one follow it.
    """
    known: set[str] = set()
    return tuple(
        mark for node in module.graph.find_nodes(op="placeholder") for mark in _marks(node, known)
    )


def _marks(node: Node, known: set[str]) -> list[MarkedSize]:
    form: Any = node.meta.get("val")
    found = []
    for dimension, size in enumerate(form.shape if isinstance(form, torch.Tensor) else ()):
        if not isinstance(size, torch.SymInt):
            continue
        name = str(size.node.expr)
        if name in known or not name.isidentifier():
            found.append(MarkedSize(node.name, dimension, "maybe_mark_dynamic"))
            continue
        known.add(name)
        found.append(MarkedSize(node.name, dimension, "mark_dynamic", *_bounds(size)))
    return found


def _bounds(size: torch.SymInt) -> tuple[int | None, int | None]:
    bounds = size.node.shape_env.var_to_range.get(size.node.expr)
    if bounds is None:
        return None, None
    return _bound(bounds.lower), _bound(bounds.upper)
