"""Reads the C++ wrapper that a package keeps beside its library: inputs, constants, calls, flags.

The text is read with patterns, line by line, and never compiled. What a pattern does not find is
missing in the answer, and nothing else. The text may be a stranger's: every pattern takes a time
that grows with its length and not with the square of it, so repetitions are bounded or begin at the
start of a line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace

from inductoscope.torch_facts.package_guards import (
    InputGuard,
    PackageGuards,
    SizeRange,
    Symbol,
)
from inductoscope.torch_facts.wrapper_calls import KernelCall, calls_by_line, run_function

_NO_LIMIT = 2**62
_LONGEST_COMMAND = 100_000  # characters that are split as a shell would
_LONGEST_LIST = 4_000  # characters of the arguments of the model's base class


@dataclass(frozen=True)
class PackagedConstant:
    """A weight or buffer."""

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
    """What the wrapper says."""

    guards: PackageGuards
    outputs: tuple[str, ...]
    constants: tuple[PackagedConstant, ...]
    calls: tuple[KernelCall, ...]
    compile_command: str
    link_command: str
    in_spec: str  # how arguments are flattened
    out_spec: str
    has_weights: bool | None  # whether the constants are in the library; None if it does not say
    declared_functions: tuple[str, ...] = ()  # of custom operators, which torch does not offer

    @property
    def compile_flags(self) -> tuple[str, ...]:
        """The flags of the compiler, without the folders of headers."""
        return flags_of(self.compile_command)


def read_wrapper(text: str) -> WrapperText:
    """Everything that the wrapper's text says."""
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
        compile_command=_command(text, "Compile cmd"),
        link_command=_command(text, "Link cmd"),
        in_spec=_raw_string(text, "in_spec_"),
        out_spec=_raw_string(text, "out_spec_"),
        has_weights=_has_weights(text),
        declared_functions=_declared(text),
    )


def _inputs(text: str) -> dict[int, str]:
    found = re.findall(r'\binputs_info_\[(\d{1,6})\]\.name = "([^"\n]*)"', text)
    return {int(number): name for number, name in found}


# --- guards ---------------------------------------------------------------------------------------

_DTYPE = re.compile(r"int32_t (\w+)_expected_dtype = aoti_torch_dtype_(\w+)\(\);")
_EXACT = re.compile(r"if \((-?\d{1,19})L* != (\w+)_(size|stride)\[(\d{1,3})\]\)")
_LEAST = re.compile(r"if \((\w+)_size\[(\d{1,3})\] < (\d{1,19})\)")
_MOST = re.compile(r"if \((\w+)_size\[(\d{1,3})\] > (\d{1,19})\)")
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
    sizes, strides = _ranges(checks), _fixed(checks, "stride")
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
        if name in asserted:
            one, other = (_listed(part) for part in asserted[name])
            if len(one) == len(other):
                guard = replace(
                    guard, size_expressions=one, stride_expressions=other, has_rank=True
                )
        yield guard


def _listed(text: str) -> tuple[str, ...]:
    """The items of a C++ list; one with a call in it is left as it is, and means nothing."""
    items, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "," and depth == 0:
            items.append(text[start:at])
            start = at + 1
    return tuple(item.strip() for item in (*items, text[start:]) if item.strip())


def _fixed(checks: str, what: str) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = {}
    for value, name, kind, dimension in _EXACT.findall(checks):
        if kind == what:
            found.setdefault(name, {})[int(dimension)] = int(value)
    return found


def _ranges(checks: str) -> dict[str, dict[int, SizeRange]]:
    found = {
        name: {dimension: SizeRange(size, size) for dimension, size in sizes.items()}
        for name, sizes in _fixed(checks, "size").items()
    }
    for name, dimension, least in _LEAST.findall(checks):
        found.setdefault(name, {})[int(dimension)] = SizeRange(least=int(least))
    for name, dimension, most in _MOST.findall(checks):
        before = found.setdefault(name, {}).get(int(dimension), SizeRange())
        if int(most) < _NO_LIMIT:
            found[name][int(dimension)] = replace(before, most=int(most))
    return found


def _symbols(body: str) -> Iterator[Symbol]:
    """Symbols are computed from the inputs before the first kernel runs."""
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
    """The last argument of the model's base class, where it has one."""
    start = text.find(": AOTInductorModelBase(")
    listed = text[start : start + _LONGEST_LIST].partition("{")[0] if start >= 0 else ""
    found = re.search(r"std::move\(cubin_dir\),\s*(true|false)\)", listed)
    return None if found is None else found.group(1) == "true"


# --- the rest -------------------------------------------------------------------------------------


def _declared(text: str) -> tuple[str, ...]:
    """Functions of custom operators are declared before the code of the model begins."""
    head = text.partition("namespace torch::aot_inductor {")[0]
    return tuple(dict.fromkeys(re.findall(r"\b(aoti_torch_\w{1,400})\s{0,9}\(", head)))


def _command(text: str, title: str) -> str:
    found = re.search(rf"^// {title}\n// (.*)$", text, re.MULTILINE)
    return found.group(1).strip() if found else ""


def _raw_string(text: str, name: str) -> str:
    found = re.search(rf'^[ \t]*{name} = R"\((.*)\)";$', text, re.MULTILINE)
    return found.group(1) if found else ""


def flags_of(command: str) -> tuple[str, ...]:
    """Flags of a compiler's command line that change what it makes."""
    try:
        words = shlex.split(command) if len(command) < _LONGEST_COMMAND else command.split()
    except ValueError:
        words = command.split()
    kept, skip = [], False
    for word in words:
        if word == "-D":
            skip = True
        elif skip:
            kept.append(f"-D{word}")
            skip = False
        elif word.startswith("-") and not word.startswith(("-I", "-L", "-W", "-o", "-include")):
            kept.append(word)
    return tuple(dict.fromkeys(kept))
