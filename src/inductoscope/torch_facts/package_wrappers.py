"""Parser for the C++ wrapper of an AOTInductor package: guards, constants, kernel calls."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from inductoscope.torch_facts.index_expressions import number_of
from inductoscope.torch_facts.log_choices import split_arguments
from inductoscope.torch_facts.python_wrappers import BUFFER_NAME
from inductoscope.wording import count_of

_SUFFIX = re.compile(r"\b(\d+)(?:L|LL|UL)\b")
_CAST = re.compile(r"static_cast<int64_t>")
_PREFIX = re.compile(r"\b(?:c10|std|at)::")
_ELEMENT = re.compile(r"\[(\d+)\]")
_MOST_LENGTH = 2_000


def value_of(expression: str, values: Mapping[str, int]) -> int | None:
    """Evaluate a C++ integer expression; None if it is not a plain one.

    Names are looked up as they are written, also `arg0_1_size[0]`. Nothing is executed.
    """
    text = expression.strip()
    if text in values or not text or len(text) > _MOST_LENGTH:
        return values.get(text)
    plain = _PREFIX.sub("", _CAST.sub("", _SUFFIX.sub(r"\1", text)))
    names = {_ELEMENT.sub(r"_at_\1", name): value for name, value in values.items()}
    return number_of(_ELEMENT.sub(r"_at_\1", plain), names)


# --- What a package demands of its inputs, and which demands given inputs break -------------------
#
# The generated code assumes what was true when the model was exported: types, ranges of sizes,
# strides, devices. It checks that only where AOTI_RUNTIME_CHECK_INPUTS is set; otherwise it
# computes with whatever it gets. `broken` is a pure function: it needs neither torch nor the
# package.

_ANY_SIZE = "any size"


@dataclass(frozen=True)
class SizeRange:
    """The range of sizes that a dimension admits; None where there is no limit."""

    least: int | None = None
    most: int | None = None

    def admits(self, size: int) -> bool:
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
        return f"input {self.index} ({self.name})" if self.name else f"input {self.index}"

    @property
    def rank(self) -> int | None:
        return len(self.size_expressions) if self.has_rank else None

    @property
    def size_texts(self) -> tuple[str, ...]:
        """The admitted sizes of each dimension: `16`, or `s77: 2 to 64`."""
        return tuple(self._size_text(at) for at in range(self._dimensions))

    @property
    def stride_texts(self) -> tuple[str, ...]:
        """The required strides; `?` where any stride is accepted."""
        return tuple(
            str(self.strides.get(at, _stated(self.stride_expressions, at)))
            for at in range(self._dimensions)
        )

    @property
    def count(self) -> int:
        sizes = [text for text in self.size_texts if not text.endswith(_ANY_SIZE)]
        strides = [text for text in self.stride_texts if text != "?"]
        others = (self.dtype, self.device, self.aligned_to)
        return len(sizes) + len(strides) + sum(map(bool, others))

    @property
    def _dimensions(self) -> int:
        return self.rank if self.rank is not None else max(self.sizes, default=-1) + 1

    @property
    def least_rank(self) -> int:
        """The least number of dimensions that the guards imply."""
        return self.rank if self.rank is not None else max((*self.sizes, *self.strides, -1)) + 1

    def _size_text(self, at: int) -> str:
        allowed = str(self.sizes[at]) if at in self.sizes else _ANY_SIZE
        symbol = _stated(self.size_expressions, at)
        return allowed if symbol == "?" or symbol.isdigit() else f"{symbol}: {allowed}"


def _stated(expressions: Sequence[str], at: int) -> str:
    return expressions[at].removesuffix("L") if at < len(expressions) else "?"


@dataclass(frozen=True)
class Symbol:
    """A size known only once the inputs are: `s77 = arg3_1_size[0]`."""

    name: str
    expression: str


@dataclass(frozen=True)
class PackageGuards:
    inputs: tuple[InputGuard, ...] = ()
    symbols: tuple[Symbol, ...] = ()  # in the order in which they are computed

    @property
    def count(self) -> int:
        return sum(guard.count for guard in self.inputs)


@dataclass(frozen=True)
class InputFacts:
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    device: str  # such as cpu or cuda:1
    alignment: int = 64  # the largest power of two, up to 64, that divides its address


@dataclass(frozen=True)
class BrokenGuard:
    input: int  # -1 where it is about their number
    name: str
    kind: str  # inputs, dtype, dimensions, size, stride, device or alignment
    dimension: int | None
    expected: str
    found: str
    text: str
    # Harmless: the stride of a one-element dimension, or a copy that only costs time.
    is_harmless: bool = False

    @property
    def is_about_inputs(self) -> bool:
        """Whether the guard is on an input rather than on the result of an operator."""
        return self.input >= 0 or self.name in ("", "input")


def broken(guards: PackageGuards, inputs: Sequence[InputFacts]) -> tuple[BrokenGuard, ...]:
    """Return every guard that these inputs violate, the harmful ones first."""
    if len(guards.inputs) != len(inputs):
        return (_wrong_number(guards, inputs),)
    values = symbol_values(guards, inputs)
    pairs = zip(guards.inputs, inputs, strict=True)
    found = (each for guard, given in pairs for each in _of_input(guard, given, values, guards))
    return tuple(sorted(found, key=lambda item: item.is_harmless))


def _wrong_number(guards: PackageGuards, inputs: Sequence[InputFacts]) -> BrokenGuard:
    names = ", ".join(guard.name for guard in guards.inputs)
    needed, given = count_of(len(guards.inputs), "tensor"), count_of(len(inputs), "tensor")
    text = f"{given} given; the package takes {needed}{f' ({names})' if names else ''}"
    expected, found = str(len(guards.inputs)), str(len(inputs))
    return BrokenGuard(-1, "", "inputs", None, expected, found, text)


def symbol_values(guards: PackageGuards, inputs: Sequence[InputFacts]) -> dict[str, int]:
    """Compute the symbols from these inputs; leave out those that cannot be computed."""
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
) -> Iterator[BrokenGuard]:
    device = given.device.partition(":")[0]
    if guard.dtype and guard.dtype != given.dtype:
        yield _break(guard, "dtype", guard.dtype, given.dtype, f"has dtype {given.dtype}")
    if guard.device and guard.device != device:
        yield _break(guard, "device", guard.device, given.device, f"is on {given.device}")
    rank, there = guard.least_rank, len(given.sizes)
    if there < rank or (guard.rank is not None and there != rank):
        wanted = f"{'' if guard.has_rank else 'at least '}{count_of(rank, 'dimension')}"
        said = f"has {count_of(there, 'dimension')}"
        yield _break(guard, "dimensions", rank, there, said, accepts=wanted)
        return
    for at, size in enumerate(given.sizes):
        yield from _size(guard, at, size, values, guards)
    for at, stride in enumerate(given.strides):
        wanted_stride = guard.strides.get(at)
        if wanted_stride is None and guard.has_rank:
            wanted_stride = value_of(guard.stride_expressions[at], values)
        if wanted_stride is not None and wanted_stride != stride:
            # The stride of a dimension with one element is never used.
            harmless = 0 in given.sizes or given.sizes[at] == 1
            more = ", which makes no difference with one element or none" if harmless else ""
            found = _break(guard, "stride", wanted_stride, stride, f"stride {at} is {stride}", at)
            yield replace(found, text=found.text + more, is_harmless=harmless)
    if guard.aligned_to and given.alignment < guard.aligned_to:
        found = _break(guard, "alignment", guard.aligned_to, given.alignment, "")
        text = (
            f"{guard.label}: is aligned to {given.alignment} bytes; the package was built for "
            f"{guard.aligned_to} and copies the input in every call"
        )
        yield replace(found, text=text, is_harmless=True)


def _size(
    guard: InputGuard, at: int, size: int, values: Mapping[str, int], guards: PackageGuards
) -> Iterator[BrokenGuard]:
    allowed, said = guard.sizes.get(at, SizeRange()), f"dimension {at} is {size}"
    if not allowed.admits(size):
        yield _break(guard, "size", allowed, size, said, at)
        return
    expression = guard.size_expressions[at] if guard.has_rank else ""
    wanted = value_of(expression, values) if expression else None
    if wanted is not None and wanted != size:
        why = f"{wanted} here, {_origin(expression, guards)}"
        yield _break(guard, "size", wanted, size, said, at, accepts=why)


def _origin(expression: str, guards: PackageGuards) -> str:
    """Name the other input that determines an expression."""
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


def _break(
    guard: InputGuard,
    kind: str,
    expected: object,
    found: object,
    said: str,
    at: int | None = None,
    *,
    accepts: str = "",
) -> BrokenGuard:
    text = f"{guard.label}: {said}; the package accepts {accepts or expected}"
    return BrokenGuard(guard.index, guard.name, kind, at, str(expected), str(found), text)


# --- Translates what the checks inside a package print with AOTI_RUNTIME_CHECK_INPUTS=1 -----------

# c10::ScalarType and c10::DeviceType: torch never reuses these numbers.
_IN_ORDER = (
    "uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
    "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
    "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64"
)
DTYPES = dict(enumerate(_IN_ORDER.split()))
DEVICES = {0: "cpu", 1: "cuda", 6: "hip", 12: "xpu", 13: "mps", 14: "meta", 19: "mtia"}

_INPUT = r"input_handles\[(?P<input>\d+)\]: "
_PAIR = r"expected: (?P<expected>-?\d+){}, but got: (?P<found>-?\d+)"
_LIMIT = r"expected (?:it )?to be (?P<expected>[<>]= \d+), but got: (?P<found>-?\d+)"
_PATTERNS = tuple(
    (kind, re.compile(_INPUT + pattern))
    for kind, pattern in (
        ("dtype", r"unmatched dtype, " + _PAIR.format(r"\([^)]*\)")),
        ("device", r"unmatched device type, " + _PAIR.format(r"\([^)]*\)")),
        ("size", r"unmatched dim value at (?P<at>\d+), " + _PAIR.format("")),
        ("size", r"dim value is too (?:small|large) at (?P<at>\d+), " + _LIMIT),
        ("stride", r"unmatched stride value at (?P<at>\d+), " + _PAIR.format("")),
    )
)
_SHAPE = re.compile(
    r"expected size (?P<found>-?\d+)==(?P<expected>-?\d+), "
    r"stride (?P<stride>-?\d+)==(?P<wanted>-?\d+) at dim=(?P<at>\d+)"
)
_RANK = re.compile(r"expected ndim (?P<expected>\d+) but got (?P<found>\d+)")
_OPERATOR = re.compile(r"Error in op: (?P<operator>\S+)")


def translate(text: str, inputs: Sequence[InputGuard] = ()) -> tuple[BrokenGuard, ...]:
    """Translate the guard failures in an error message; empty if it names none.

    `inputs` gives the names of the inputs, where they are known.
    """
    found = []
    for kind, pattern in _PATTERNS:
        found += [_message_on_input(kind, match, inputs) for match in pattern.finditer(text)]
    return tuple(dict.fromkeys((*found, *_of_tensor(text))))


def _message_on_input(kind: str, match: re.Match[str], inputs: Sequence[InputGuard]) -> BrokenGuard:
    index = int(match["input"])
    guard = inputs[index] if index < len(inputs) else InputGuard(index, "")
    expected, found = match["expected"], match["found"]
    at = int(match["at"]) if "at" in match.groupdict() else None
    if kind in ("dtype", "device"):
        names = DTYPES if kind == "dtype" else DEVICES
        # The expected device is printed twice in a row, as in '00(cpu)'.
        wanted = expected[: len(expected) // 2] if kind == "device" else expected
        expected, found = (names.get(int(n or 0), f"number {n}") for n in (wanted, found))
        said = f"has dtype {found}" if kind == "dtype" else f"is on {found}"
    else:
        said = f"{'dimension' if kind == 'size' else 'stride'} {at} is {found}"
    plain = expected.replace(">= ", "at least ").replace("<= ", "at most ")
    return _break(guard, kind, plain, found, said, at)


def _of_tensor(text: str) -> list[BrokenGuard]:
    """Yield the failed assertions of the wrapper on inputs and on operator results."""
    operator = _OPERATOR.search(text)
    if operator is None:
        return []
    name = operator["operator"]
    found = []
    for match in _RANK.finditer(text):
        there, wanted = match["found"], match["expected"]
        said = _assertion(name, f"has {there} dimensions", wanted)
        found.append(BrokenGuard(-1, name, "dimensions", None, wanted, there, said))
    for match in _SHAPE.finditer(text):
        at = int(match["at"])
        kind = "size" if match["found"] != match["expected"] else "stride"
        pair = ("found", "expected") if kind == "size" else ("stride", "wanted")
        there, wanted = (match[group] for group in pair)
        what = "dimension" if kind == "size" else "stride"
        said = _assertion(name, f"{what} {at} is {there}", wanted)
        found.append(BrokenGuard(-1, name, kind, at, wanted, there, said))
    return found


def _assertion(name: str, said: str, wanted: str) -> str:
    if name == "input":
        return f"an input: {said}; the package accepts {wanted}"
    return f"what {name} returned: {said}; its fake (meta) function promised {wanted}"


# --------------------------------------------------------------------------------------------------
# The calls that a C++ wrapper makes, the lines that they stand on, and the names of operators.
#
# The text may be a stranger's: every pattern takes a time that grows with its length and not with
# the square of it.

# The function that runs the graph: of a package, or of a graph of torch.compile.
_BEGIN = re.compile(r"^void (?:\w+::run_impl|inductor_entry_impl)\(", re.MULTILINE)
_END = re.compile(r"^\} // (?:\w+::run_impl|inductor_entry_impl)", re.MULTILINE)


@dataclass(frozen=True)
class KernelCall:
    """A kernel call of the model, numbered in execution order."""

    number: int
    name: str
    kind: str  # kernel (generated), library (an operator of torch) or operator (custom)
    aten: tuple[str, ...] = ()  # the operators that it computes
    operator: int | None = None  # which entry of the list of custom operators it calls
    writes: tuple[str, ...] = ()  # variables that a generated C++ kernel may write to


@dataclass(frozen=True)
class RunFunction:
    """The source of the function that runs the graph, and its first line in the wrapper."""

    text: str
    first_line: int


def run_function(text: str) -> RunFunction | None:
    start = _BEGIN.search(text) if "void " in text else None
    if start is None:
        return None
    end = _END.search(text, start.start())
    body = text[start.start() : end.end() if end else len(text)]
    return RunFunction(body, text.count("\n", 0, start.start()) + 1)


_OUTPUT = re.compile(
    r"^\s*output_handles\[([0-9]{1,6})\] = (?:std::move\()?(output_handles\[[0-9]{1,6}\]|\w+)"
)
# A view is assigned to a variable before it is returned.
_VIEW = re.compile(r"^\s*auto (var_[0-9]{1,9}) = (.*)$")


def outputs_in_cpp(lines: Sequence[str]) -> dict[int, str]:
    """Map output positions of a C++ wrapper to the buffers returned."""
    # Aliases: a view stands for its buffer, a repeated output for the first.
    known: dict[str, str] = {}
    found: dict[int, str] = {}
    for line in lines:
        view = _VIEW.match(line)
        buffer = BUFFER_NAME.search(view[2]) if view else None
        if view and buffer:
            known[view[1]] = buffer[0]
        output = _OUTPUT.match(line)
        if output:
            name = known.get(output[2], output[2])
            known[f"output_handles[{output[1]}]"] = name
            found[int(output[1])] = name
    return found


# The only call that gives an index into the list of custom operators instead of a name.
_BY_PLACE = re.compile(r"aoti_torch_proxy_executor_call_function\(proxy_executor, ([0-9]{1,9})")
_CALLS = (
    ("operator", _BY_PLACE),
    ("operator", re.compile(r"aoti_torch_call_dispatcher\(\"([\w:.]{1,400})\"")),
    ("library", re.compile(r"\b(aoti_torch_(?:cpu|cuda|xpu|mps|aten|mkldnn)_\w+)\(")),
    ("kernel", re.compile(r"\blaunchKernel\(kernels\.(\w+),")),
    ("kernel", re.compile(r"^\s*call_(\w+)\(")),
    ("kernel", re.compile(r"^\s*((?:cpp|triton|cuda|cutlass)_\w+)\(")),
)
_ATEN = re.compile(r"Original ATen: \[([^\[\]]*)\]")
_WRITTEN = re.compile(r"(?<!const )\b[\w:]{1,60}\*\)\((\w+)\.data_ptr\(\)\)")


def calls_by_line(body: str) -> Iterator[tuple[int, KernelCall]]:
    """Yield the calls in the function's text, with line numbers counted from 0."""
    aten: tuple[str, ...] = ()
    number = 0
    for at, line in enumerate(body.splitlines()):
        found = _ATEN.search(line)
        if found is not None:
            aten = tuple(word.strip() for word in found.group(1).split(",") if word.strip())
            continue
        call = _call(line, number, aten)
        if call is not None:
            yield at, call
            number, aten = number + 1, ()


def _call(line: str, number: int, aten: tuple[str, ...]) -> KernelCall | None:
    for kind, pattern in _CALLS:
        found = pattern.search(line)
        if found is None:
            continue
        if kind == "operator":
            which = found.group(1)
            if pattern is _BY_PLACE:
                return KernelCall(number, "", kind, aten, int(which))
            return KernelCall(number, which, kind, aten)
        # Only the signatures of generated C++ kernels tell which arguments are written.
        writes = _WRITTEN.findall(line) if found.group(1).startswith("cpp_") else []
        return KernelCall(number, found.group(1), kind, aten, writes=tuple(dict.fromkeys(writes)))
    return None


# --- The names of one operator: as the scheduler has it, and as a C++ wrapper calls it ------------

_SHIM = re.compile(r"aoti_torch_(?:(?:cpu|cuda|xpu|mps|aten)_)?(\w+?)(?:_v[0-9]{1,3})?")


def scheduler_names(recorded: str) -> frozenset[str]:
    """Return the possible names of a scheduler kernel: its own or its operator's."""
    namespace, _, rest = recorded.removeprefix("torch.ops.").partition(".")
    operator, _, overload = rest.partition(".")
    if not operator:
        return frozenset({recorded})
    bare = operator.removesuffix("_")  # What works in place ends with it.
    full = f"{bare}_{overload}" if overload and overload != "default" else bare
    return frozenset({recorded, f"{namespace}::{operator}", full})


def called_names(reported: str) -> frozenset[str]:
    """Return the names that `scheduler_names` may give for a call in a wrapper."""
    shim = _SHIM.fullmatch(reported)
    if shim is None:
        return frozenset({reported, "::".join(reported.split("::")[:2]).partition(".")[0]})
    bare = shim[1].removesuffix("_out").removesuffix("_")
    return frozenset({reported, bare, bare.removeprefix("mkldnn_")})


def is_same_operator(recorded: str, reported: str) -> bool:
    return not scheduler_names(recorded).isdisjoint(called_names(reported))


# --------------------------------------------------------------------------------------------------
# Reads the C++ wrapper that a package keeps beside its library: inputs, constants, calls, flags.
#
# The text is read with patterns, line by line, and never compiled. What a pattern does not find is
# missing in the answer, and nothing else. The text may be a stranger's: every pattern takes a time
# that grows with its length and not with its square, so repetitions are bounded or begin at the
# start of a line.

_NO_LIMIT = 2**62
_LONGEST_COMMAND = 100_000  # characters that are split as a shell would
_LONGEST_LIST = 4_000  # characters of the arguments of the model's base class


@dataclass(frozen=True)
class PackagedConstant:
    name: str  # as in the model, such as l.weight
    variable: str  # as in the wrapper, such as l_weight
    dtype: str
    device: str
    shape: tuple[int, ...]
    bytes: int
    kind: str  # parameter, buffer, tensor constant or folded constant
    is_folded: bool = False
    written_by: tuple[str, ...] = ()  # kernels that change it in place
    stride: tuple[int, ...] = ()


@dataclass(frozen=True)
class WrapperText:
    guards: PackageGuards
    outputs: tuple[str, ...]
    constants: tuple[PackagedConstant, ...]
    calls: tuple[KernelCall, ...]
    compile_command: str
    link_command: str
    in_spec: str  # how arguments are flattened
    has_weights: bool | None  # whether the constants are in the library; None if it does not say
    declared_functions: tuple[str, ...] = ()  # of custom operators, which torch does not offer

    @property
    def compile_flags(self) -> tuple[str, ...]:
        return flags_of(self.compile_command)


def read_wrapper(text: str) -> WrapperText:
    run = run_function(text)
    body = run.text if run else ""
    names = _inputs(text)
    calls = tuple(call for _, call in calls_by_line(body))
    constants = tuple(_constants(text, calls))
    return WrapperText(
        guards=PackageGuards(tuple(_guards(text, body, names)), tuple(_symbols(body))),
        outputs=tuple(re.findall(r'outputs_info_\[\d{1,6}\]\.name = "([^"\n]*)"', text)),
        constants=constants,
        calls=calls,
        compile_command=_found(r"^// Compile cmd\n// (.*)$", text).strip(),
        link_command=_found(r"^// Link cmd\n// (.*)$", text).strip(),
        in_spec=_found(r'^[ \t]*in_spec_ = R"\((.*)\)";$', text),
        has_weights=_has_weights(text),
        declared_functions=_declared(text),
    )


def _inputs(text: str) -> dict[int, str]:
    found = re.findall(r'\binputs_info_\[(\d{1,6})\]\.name = "([^"\n]*)"', text)
    return {int(number): name for number, name in found}


# --- guards ---------------------------------------------------------------------------------------

_DTYPE = re.compile(r"int32_t (\w+)_expected_dtype = aoti_torch_dtype_(\w+)\(\);")
_EXACT = re.compile(r"if \((-?\d{1,19})L* != (\w+)_(size|stride)\[(\d{1,3})\]\)")
_AT_LEAST = re.compile(r"if \((\w+)_size\[(\d{1,3})\] < (\d{1,19})\)")
_AT_MOST = re.compile(r"if \((\w+)_size\[(\d{1,3})\] > (\d{1,19})\)")
_DEVICE = re.compile(r'<< (\w+)_expected_device_type << "\d{1,9}\((\w+)\), "')
_ASSERTED = re.compile(r"assert_size_stride\((\w+), \{([^{}]*)\}, \{([^{}]*)\}, \"input\"\)")
_ALIGNED = re.compile(
    r"reinterpret_cast<std::uintptr_t>\((\w+)\.data_ptr\(\)\) & \((\d{1,9}) ?- ?1\)"
)
_SYMBOL = re.compile(r"^[ \t]*(?:const )?int64_t (\w+) = ([^;\n]+);", re.MULTILINE)


def _guards(text: str, body: str, names: dict[int, str]) -> Iterator[InputGuard]:
    checks = text[: text.find(body)] if body else text
    dtypes = dict(_DTYPE.findall(checks))
    devices = dict(_DEVICE.findall(checks))
    sizes, strides = _limits(checks)
    asserted = {name: (one, other) for name, one, other in _ASSERTED.findall(body)}
    aligned = {name: int(number) for name, number in _ALIGNED.findall(body)}
    for index, name in sorted(names.items()):
        guard = InputGuard(
            index=index,
            name=name,
            dtype=dtypes.get(name, ""),
            sizes=sizes.get(name, {}),
            strides=strides.get(name, {}),
            device=devices.get(name, ""),
            aligned_to=aligned.get(name, 0),
        )
        one, other = map(_listed, asserted.get(name, ("", "-")))
        if len(one) == len(other):
            guard = replace(guard, size_expressions=one, stride_expressions=other, has_rank=True)
        yield guard


def _listed(text: str) -> tuple[str, ...]:
    """Split the items of a C++ list; an item that contains a call stays whole and unused."""
    return tuple(item.strip() for item in split_arguments(text, "(", ")") if item.strip())


def _limits(
    checks: str,
) -> tuple[dict[str, dict[int, SizeRange]], dict[str, dict[int, int]]]:
    sizes: defaultdict[str, dict[int, SizeRange]] = defaultdict(dict)
    strides: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for value, name, kind, dimension in _EXACT.findall(checks):
        if kind == "size":
            sizes[name][int(dimension)] = SizeRange(int(value), int(value))
        else:
            strides[name][int(dimension)] = int(value)
    for name, dimension, least in _AT_LEAST.findall(checks):
        sizes[name][int(dimension)] = SizeRange(least=int(least))
    for name, dimension, most in _AT_MOST.findall(checks):
        before = sizes[name].get(int(dimension), SizeRange())
        if int(most) < _NO_LIMIT:
            sizes[name][int(dimension)] = replace(before, most=int(most))
    return sizes, strides


def _symbols(body: str) -> Iterator[Symbol]:
    """Parse the symbols, which are computed from the inputs before the first kernel runs."""
    head = body.partition("inputs.clear();")[0]
    for name, expression in _SYMBOL.findall(head):
        yield Symbol(name, expression.strip())


# --- constants ------------------------------------------------------------------------------------

_CONSTANT = re.compile(r"^[ \t]*constants_info_\[(\d{1,9})\]\.(\w+) = (.*);$", re.MULTILINE)
_KINDS = {"Parameter": "parameter", "Buffer": "buffer", "TensorConstant": "tensor constant"}


def _constants(text: str, calls: tuple[KernelCall, ...]) -> Iterator[PackagedConstant]:
    rows: dict[int, dict[str, str]] = {}
    for number, name, value in _CONSTANT.findall(text):
        rows.setdefault(int(number), {})[name] = value
    writers: dict[str, list[str]] = {}
    for call in calls:
        for written in call.writes:
            writers.setdefault(written, []).append(call.name)
    for row in rows.values():
        variable = row.get("name", "").strip('"')
        kind = row.get("type", "").rpartition("::")[2].rstrip(")")
        yield PackagedConstant(
            name=row.get("original_fqn", row.get("name", "")).strip('"'),
            variable=variable,
            dtype=row.get("dtype", "").removeprefix("cached_torch_dtype_"),
            device=row.get("device_type", "").removeprefix("cached_torch_device_type_"),
            shape=_integers(row.get("shape", "")),
            bytes=next(iter(_integers(row.get("data_size", ""))), 0),
            kind=_KINDS.get(kind, "folded constant" if row.get("from_folded") == "true" else kind),
            is_folded=row.get("from_folded") == "true",
            written_by=tuple(dict.fromkeys(writers.get(variable, ()))),
            stride=_integers(row.get("stride", "")),
        )


def _integers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"-?\d{1,19}", text))


def _has_weights(text: str) -> bool | None:
    """Read the last argument of the model's base class, if present."""
    start = text.find(": AOTInductorModelBase(")
    listed = text[start : start + _LONGEST_LIST].partition("{")[0] if start >= 0 else ""
    found = re.search(r"std::move\(cubin_dir\),\s*(true|false)\)", listed)
    return None if found is None else found.group(1) == "true"


# --- the rest -------------------------------------------------------------------------------------


def _declared(text: str) -> tuple[str, ...]:
    """Parse the custom operators, which are declared ahead of the model's code."""
    head = text.partition("namespace torch::aot_inductor {")[0]
    return tuple(dict.fromkeys(re.findall(r"\b(aoti_torch_\w{1,400})\s{0,9}\(", head)))


def _found(pattern: str, text: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    return found[1] if found else ""


def flags_of(command: str) -> tuple[str, ...]:
    """Return the flags of a compiler command that affect code generation."""
    try:
        words = shlex.split(command) if len(command) < _LONGEST_COMMAND else command.split()
    except ValueError:
        words = command.split()
    pairs = zip(("", *words), words, strict=False)
    given = [f"-D{word}" if before == "-D" else word for before, word in pairs if word != "-D"]
    no_effect = ("-I", "-L", "-W", "-o", "-include")
    return tuple(
        dict.fromkeys(w for w in given if w.startswith("-") and not w.startswith(no_effect))
    )
