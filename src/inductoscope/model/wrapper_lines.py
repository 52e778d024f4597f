"""The part of a wrapper that calls kernels, in Python or in C++: which line calls which kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from inductoscope.model.entities import Kernel
from inductoscope.model.wrapper_calls import KernelCall, calls_by_line, run_function

_CALLING = re.compile(r"\s*(?:class Runner|def call)\b")
_WORD = re.compile(r"[\w.]+")


@dataclass(frozen=True)
class WrapperLines:
    """The lines that call kernels."""

    language: str
    # Where they begin in the wrapper, counted from 1.
    first_line: int
    lines: tuple[str, ...]
    # By place in `lines`.
    kernels: Mapping[int, tuple[Kernel, ...]] = field(default_factory=dict)


def wrapper_lines(text: str, kernels: Sequence[Kernel]) -> WrapperLines:
    """The lines of a wrapper that run the graph, with the kernels that each one calls."""
    run = run_function(text)
    if run is not None:
        lines = tuple(run.text.splitlines())
        found = dict(_called_in_cpp(run.text, lines, kernels))
        return WrapperLines("cpp", run.first_line, lines, found)
    every = text.splitlines()
    start = next((n for n, line in enumerate(every) if _CALLING.match(line)), len(every))
    lines = tuple(every[start:])
    return WrapperLines("python", start + 1, lines, dict(_called_in_python(lines, kernels)))


def _called_in_python(
    lines: Sequence[str], kernels: Sequence[Kernel]
) -> Iterator[tuple[int, tuple[Kernel, ...]]]:
    named: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        named.setdefault(kernel.name, []).append(kernel)
    for at, line in enumerate(lines):
        words = set(_WORD.findall(line))
        called = [k for word in words & named.keys() for k in named[word]]
        # The same kernel may be called more than once: its outputs identify each call.
        found = [k for k in called if len(called) == 1 or words & set(k.writes)]
        if found:
            yield at, tuple(found)


def _called_in_cpp(
    body: str, lines: Sequence[str], kernels: Sequence[Kernel]
) -> Iterator[tuple[int, tuple[Kernel, ...]]]:
    """C++ has other names for library calls. Kernels are called in the order of their nodes."""
    begin = 0
    for at, call in calls_by_line(body):
        words = {word.removesuffix("_handle") for word in re.findall(r"\w+", lines[at])}
        for place in range(begin, len(kernels)):
            if _is_call_of(kernels[place], call, words):
                begin = place + 1
                yield at, (kernels[place],)
                break


def _is_call_of(kernel: Kernel, call: KernelCall, words: set[str]) -> bool:
    if call.kind == "kernel":
        return kernel.name == call.name
    if kernel.language != "extern":
        return False
    by_name = call.kind == "operator" and call.name.replace("::", ".")
    return bool(words & {*kernel.reads, *kernel.writes}) or (
        bool(by_name) and str(by_name) in kernel.name
    )


_CPP_OUTPUT = re.compile(r"^\s*output_handles\[\d{1,6}\] = (?:std::move\()?(\w+)")
_PYTHON_OUTPUTS = re.compile(r"^\s*return \((.*)\)\s*$")
_NAME = re.compile(r"\b(?:buf\d+|arg\w+|primals\w+)\b")


def output_buffers(found: WrapperLines) -> tuple[str, ...]:
    """The buffers that the graph returns, in order; not all, where a line is not as expected."""
    if found.language == "cpp":
        matches = (_CPP_OUTPUT.match(line) for line in found.lines)
        return tuple(match[1] for match in matches if match)
    for line in found.lines:
        returned = _PYTHON_OUTPUTS.match(line)
        if returned:
            return tuple(dict.fromkeys(_NAME.findall(returned[1])))
    return ()
