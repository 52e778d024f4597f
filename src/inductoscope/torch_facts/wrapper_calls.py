"""The calls that a C++ wrapper makes, the lines that they stand on, and the names of operators.

The text may be a stranger's: every pattern takes a time that grows with its length and not with
the square of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

# The function that runs the graph: of a package, or of a graph of torch.compile.
_BEGIN = re.compile(r"^void (?:\w+::run_impl|inductor_entry_impl)\(", re.MULTILINE)
_END = re.compile(r"^\} // (?:\w+::run_impl|inductor_entry_impl)", re.MULTILINE)


@dataclass(frozen=True)
class KernelCall:
    """One call that the model makes, in its order."""

    number: int
    name: str
    kind: str  # kernel (generated), library (an operator of torch) or operator (custom)
    aten: tuple[str, ...] = ()  # the operators that it computes
    operator: int | None = None  # which entry of the list of custom operators it calls
    writes: tuple[str, ...] = ()  # variables that a generated C++ kernel may write to


@dataclass(frozen=True)
class RunFunction:
    """The text of the function that runs the graph, and the line of the wrapper it begins on."""

    text: str
    first_line: int


def run_function(text: str) -> RunFunction | None:
    """The function that runs the graph, from its first line to its last; None for Python."""
    start = _BEGIN.search(text) if "void " in text else None
    if start is None:
        return None
    end = _END.search(text, start.start())
    body = text[start.start() : end.end() if end else len(text)]
    return RunFunction(body, text.count("\n", 0, start.start()) + 1)


# The only one that has a place in the list of custom operators, and no name.
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
    """The calls in the text of the function, with their lines, counted from 0."""
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
        # Only generated C++ kernels say by their types what they write to.
        writes = _WRITTEN.findall(line) if found.group(1).startswith("cpp_") else []
        return KernelCall(number, found.group(1), kind, aten, writes=tuple(dict.fromkeys(writes)))
    return None


# --- The names of one operator: as the scheduler has it, and as a C++ wrapper calls it ------------

_SHIM = re.compile(r"aoti_torch_(?:(?:cpu|cuda|xpu|mps|aten)_)?(\w+?)(?:_v[0-9]{1,3})?")


def scheduler_names(recorded: str) -> frozenset[str]:
    """What `called_names` may give for a kernel of the scheduler: itself, or its operator."""
    namespace, _, rest = recorded.removeprefix("torch.ops.").partition(".")
    operator, _, overload = rest.partition(".")
    if not operator:
        return frozenset({recorded})
    bare = operator.removesuffix("_")  # What works in place ends with it.
    full = f"{bare}_{overload}" if overload and overload != "default" else bare
    return frozenset({recorded, f"{namespace}::{operator}", full})


def called_names(reported: str) -> frozenset[str]:
    """The names under which `scheduler_names` may have what a wrapper calls."""
    shim = _SHIM.fullmatch(reported)
    if shim is None:
        return frozenset({reported, "::".join(reported.split("::")[:2]).partition(".")[0]})
    bare = shim[1].removesuffix("_out").removesuffix("_")
    return frozenset({reported, bare, bare.removeprefix("mkldnn_")})


def is_same_operator(recorded: str, reported: str) -> bool:
    """Whether a wrapper calls a kernel of the scheduler by the name that it reports."""
    return not scheduler_names(recorded).isdisjoint(called_names(reported))
