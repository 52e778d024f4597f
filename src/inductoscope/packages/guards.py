"""What a package demands of its inputs, and which demands given inputs break.

The generated code assumes what was true when the model was exported: types, ranges of sizes,
strides, devices. It checks that only where AOTI_RUNTIME_CHECK_INPUTS is set; otherwise it computes
with whatever it gets. `broken` is a pure function: it needs neither torch nor the package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.packages.size_expressions import value_of
from inductoscope.vocabulary.counting import count_of

_ANY_SIZE = "any size"


@dataclass(frozen=True)
class SizeRange:
    """What one dimension may be; None where there is no limit."""

    least: int | None = None
    most: int | None = None

    def admits(self, size: int) -> bool:
        """Whether a size is inside."""
        return (self.least is None or size >= self.least) and (
            self.most is None or size <= self.most
        )

    def __str__(self) -> str:
        if self.least == self.most:
            return _ANY_SIZE if self.least is None else f"{self.least}"
        if self.most is None:
            return f"{self.least} or more"
        return f"{self.least} to {self.most}" if self.least is not None else f"up to {self.most}"


@dataclass(frozen=True)
class InputGuard:
    """What one input has to be."""

    index: int
    name: str
    dtype: str = ""
    sizes: Mapping[int, SizeRange] = field(default_factory=dict)  # by dimension
    strides: Mapping[int, int] = field(default_factory=dict)  # those that are fixed
    device: str = ""
    # Sizes and strides as expressions over symbols that other inputs define; none if not stated.
    size_expressions: tuple[str, ...] = ()
    stride_expressions: tuple[str, ...] = ()
    has_rank: bool = False  # whether the expressions above are stated
    aligned_to: int = 0  # bytes; a package for a GPU copies an input that is not

    @property
    def label(self) -> str:
        """How messages call it."""
        return f"input {self.index} ({self.name})" if self.name else f"input {self.index}"

    @property
    def rank(self) -> int | None:
        """How many dimensions it has, if the package says so."""
        return len(self.size_expressions) if self.has_rank else None

    @property
    def size_texts(self) -> tuple[str, ...]:
        """What each dimension may be: `16`, or `s77: 2 to 64`."""
        return tuple(self._size_text(at) for at in range(self._dimensions))

    @property
    def stride_texts(self) -> tuple[str, ...]:
        """What each stride has to be; `?` where it is not demanded."""
        return tuple(
            str(self.strides.get(at, _stated(self.stride_expressions, at)))
            for at in range(self._dimensions)
        )

    @property
    def count(self) -> int:
        """How many demands there are on it."""
        sizes = [text for text in self.size_texts if not text.endswith(_ANY_SIZE)]
        strides = [text for text in self.stride_texts if text != "?"]
        others = (self.dtype, self.device, self.aligned_to)
        return len(sizes) + len(strides) + sum(map(bool, others))

    @property
    def _dimensions(self) -> int:
        return self.rank if self.rank is not None else max((*self.sizes, -1)) + 1

    def _size_text(self, at: int) -> str:
        allowed = str(self.sizes[at]) if at in self.sizes else _ANY_SIZE
        symbol = _stated(self.size_expressions, at)
        return allowed if symbol == "?" or symbol.isdigit() else f"{symbol}: {allowed}"


def _stated(expressions: Sequence[str], at: int) -> str:
    return expressions[at].removesuffix("L") if at < len(expressions) else "?"


@dataclass(frozen=True)
class Symbol:
    """A size that is known only when the inputs are: `s77 = arg3_1_size[0]`."""

    name: str
    expression: str


@dataclass(frozen=True)
class PackageGuards:
    """All demands of one model."""

    inputs: tuple[InputGuard, ...] = ()
    symbols: tuple[Symbol, ...] = ()  # in the order in which they are computed

    @property
    def count(self) -> int:
        """How many demands there are."""
        return sum(guard.count for guard in self.inputs)


@dataclass(frozen=True)
class InputFacts:
    """What one given input is."""

    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    device: str  # such as cpu or cuda:1
    alignment: int = 64  # the largest power of two, up to 64, that divides its address

    @property
    def is_empty(self) -> bool:
        """Whether it holds no value."""
        return 0 in self.sizes


@dataclass(frozen=True)
class BrokenGuard:
    """One demand that an input does not meet."""

    input: int  # -1 where it is about their number
    name: str
    kind: str  # inputs, dtype, dimensions, size, stride, device or alignment
    dimension: int | None
    expected: str
    found: str
    text: str
    # A stride of a dimension with one element, or a copy that costs time: nothing goes wrong.
    is_harmless: bool = False

    @property
    def is_about_inputs(self) -> bool:
        """Or about what an operator returned."""
        return self.input >= 0 or self.name in ("", "input")


def broken(guards: PackageGuards, inputs: Sequence[InputFacts]) -> tuple[BrokenGuard, ...]:
    """Every demand that these inputs break, the harmful ones first."""
    if len(guards.inputs) != len(inputs):
        return (_wrong_number(guards, inputs),)
    found: list[BrokenGuard] = []
    values = symbol_values(guards, inputs)
    for guard, given in zip(guards.inputs, inputs, strict=True):
        found += _of_input(guard, given, values, guards)
    return tuple(sorted(found, key=lambda item: item.is_harmless))


def _wrong_number(guards: PackageGuards, inputs: Sequence[InputFacts]) -> BrokenGuard:
    names = ", ".join(guard.name for guard in guards.inputs)
    needed, given = count_of(len(guards.inputs), "tensor"), count_of(len(inputs), "tensor")
    text = f"{given} given; the package takes {needed}{f' ({names})' if names else ''}"
    expected, found = str(len(guards.inputs)), str(len(inputs))
    return BrokenGuard(-1, "", "inputs", None, expected, found, text)


def symbol_values(guards: PackageGuards, inputs: Sequence[InputFacts]) -> dict[str, int]:
    """What the symbols are for these inputs; one that cannot be computed is left out."""
    values: dict[str, int] = {}
    for guard, given in zip(guards.inputs, inputs, strict=False):
        for name, numbers in (("size", given.sizes), ("stride", given.strides)):
            for dimension, number in enumerate(numbers):
                values[f"{guard.name}_{name}[{dimension}]"] = number
                values[f"{guard.name}_{name}_{dimension}"] = number
    for symbol in guards.symbols:
        value = value_of(symbol.expression, values)
        if value is not None:
            values[symbol.name] = value
    return values


def _of_input(
    guard: InputGuard, given: InputFacts, values: Mapping[str, int], guards: PackageGuards
) -> list[BrokenGuard]:
    found = []
    if guard.dtype and guard.dtype != given.dtype:
        text = f"has dtype {given.dtype}; the package accepts {guard.dtype}"
        found.append(_break(guard, "dtype", None, guard.dtype, given.dtype, text))
    if guard.device and guard.device != given.device.partition(":")[0]:
        text = f"is on {given.device}; the package accepts {guard.device}"
        found.append(_break(guard, "device", None, guard.device, given.device, text))
    rank = _needed_rank(guard)
    if len(given.sizes) < rank or (guard.rank is not None and len(given.sizes) != guard.rank):
        least = "" if guard.rank is not None else "at least "
        wanted = f"{least}{count_of(rank, 'dimension')}"
        text = f"has {count_of(len(given.sizes), 'dimension')}; the package accepts {wanted}"
        return [*found, _break(guard, "dimensions", None, str(rank), str(len(given.sizes)), text)]
    found += _sizes(guard, given, values, guards)
    found += _strides(guard, given, values)
    if guard.aligned_to and given.alignment < guard.aligned_to:
        text = (
            f"is aligned to {given.alignment} bytes; the package was built for "
            f"{guard.aligned_to} and copies the input in every call"
        )
        wanted, there = str(guard.aligned_to), str(given.alignment)
        found.append(_break(guard, "alignment", None, wanted, there, text, is_harmless=True))
    return found


def _needed_rank(guard: InputGuard) -> int:
    if guard.rank is not None:
        return guard.rank
    return max((*guard.sizes, *guard.strides), default=-1) + 1


def _sizes(
    guard: InputGuard, given: InputFacts, values: Mapping[str, int], guards: PackageGuards
) -> list[BrokenGuard]:
    found = []
    for dimension, size in enumerate(given.sizes):
        allowed = guard.sizes.get(dimension, SizeRange())
        if not allowed.admits(size):
            text = f"dimension {dimension} is {size}; the package accepts {allowed}"
            found.append(_break(guard, "size", dimension, str(allowed), str(size), text))
            continue
        expression = guard.size_expressions[dimension] if guard.has_rank else ""
        wanted = value_of(expression, values) if expression else None
        if wanted is not None and wanted != size:
            why = _origin(expression, guards)
            text = f"dimension {dimension} is {size}; the package accepts {wanted} here, {why}"
            found.append(_break(guard, "size", dimension, str(wanted), str(size), text))
    return found


def _origin(expression: str, guards: PackageGuards) -> str:
    """Which other input decides the value of an expression."""
    defined = {symbol.name: symbol.expression for symbol in guards.symbols}
    meaning = defined.get(expression, expression)
    seen = {expression}
    while meaning in defined and meaning not in seen:
        seen.add(meaning)
        meaning = defined[meaning]
    for guard in guards.inputs:
        for dimension in range(len(guard.size_expressions) or len(guard.sizes)):
            if meaning == f"{guard.name}_size[{dimension}]":
                return f"the size of dimension {dimension} of {guard.label}"
    return f"which is {meaning}"


def _strides(guard: InputGuard, given: InputFacts, values: Mapping[str, int]) -> list[BrokenGuard]:
    found = []
    for dimension, stride in enumerate(given.strides):
        wanted = guard.strides.get(dimension)
        if wanted is None and guard.has_rank:
            wanted = value_of(guard.stride_expressions[dimension], values)
        if wanted is None or wanted == stride:
            continue
        # Nothing is read with the stride of a dimension that has one element.
        harmless = given.is_empty or given.sizes[dimension] == 1
        text = f"stride {dimension} is {stride}; the package accepts {wanted}"
        if harmless:
            text += ", which makes no difference with one element or none"
        found.append(
            _break(guard, "stride", dimension, str(wanted), str(stride), text, is_harmless=harmless)
        )
    return found


def _break(
    guard: InputGuard,
    kind: str,
    dimension: int | None,
    expected: str,
    found: str,
    text: str,
    *,
    is_harmless: bool = False,
) -> BrokenGuard:
    return BrokenGuard(
        input=guard.index,
        name=guard.name,
        kind=kind,
        dimension=dimension,
        expected=expected,
        found=found,
        text=f"{guard.label}: {text}",
        is_harmless=is_harmless,
    )
