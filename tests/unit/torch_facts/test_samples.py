"""Real text of each torch release beside the facts that are read from it.

A sample is `samples/SUBJECT/torch-RELEASE/NAME.txt` (or .cpp), with the facts in `NAME.json` beside
it. To add one of another release, save the text there and run this file: it writes the facts of
every sample anew, and the diff shows what the readers make of them.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from inductoscope.hangs.logs.lines import find_events, recognise
from inductoscope.torch_facts.cpp_loops import loop_nests
from inductoscope.torch_facts.cpp_wrappers import with_reports
from inductoscope.torch_facts.frames import frames_in
from inductoscope.torch_facts.fusion_reasons import explain_reason
from inductoscope.torch_facts.guard_reasons import read_guard
from inductoscope.torch_facts.index_expressions import read_expression
from inductoscope.torch_facts.log_choices import parse_choice
from inductoscope.torch_facts.loop_bodies import read_body, steps_of
from inductoscope.torch_facts.messages import asked_in_vain, crash_place, refused_variable
from inductoscope.torch_facts.package_wrappers import read_wrapper, translate
from inductoscope.torch_facts.printed_graphs import (
    collectives_in,
    graph_lines,
    module_names,
    saved_tensors,
)
from inductoscope.torch_facts.printed_stacks import find_stacks
from inductoscope.torch_facts.python_wrappers import plan_of, timed_wrapper
from inductoscope.torch_facts.stage_lookup import stage_of_frames, stage_of_module, stage_of_phase
from inductoscope.torch_facts.triton_indices import kernel_integers
from inductoscope.torch_facts.triton_kernels import read_kernel_files

SAMPLES = Path(__file__).parent / "samples"
Facts = Any


def each_line(read: Callable[[str], Facts]) -> Callable[[Path], Facts]:
    """Reads a sample that has one text on every line."""
    return lambda path: {line: read(line) for line in path.read_text().splitlines() if line}


def whole(read: Callable[[str], Facts]) -> Callable[[Path], Facts]:
    """Reads a sample that is one text."""
    return lambda path: read(path.read_text())


def _log_line(message: str) -> Facts:
    pattern = recognise(message)
    match = pattern.expression.match(message) if pattern else None
    return pattern and pattern.meaning and {pattern.meaning.value: match and match.groups()}


def _events(path: Path) -> Facts:
    data = path.read_bytes()
    return [event for _, event in find_events(data, len(data)).events]


def _stacks(path: Path) -> Facts:
    data = path.read_bytes()
    return [stack for _, stack in find_stacks(data, 0, len(data))]


def _triton_kernels(path: Path) -> Facts:
    return [
        {
            "name": kernel.name,
            "heuristic": kernel.heuristic,
            "signature": kernel.signature,
            "configuration": kernel.configuration,
            "target": str(kernel.target),
            "problems": kernel.problems,
        }
        for kernel in read_kernel_files(path)
    ]


def _triton_indices(path: Path) -> Facts:
    found = kernel_integers(path.read_text())
    assert found is not None
    ranges = {name: value for name, value in found.known.items() if value.ends is not None}
    return {"ranges": ranges, "narrow axes": found.narrow_axes or None}


def _cpp_loops(text: str) -> Facts:
    return [
        {
            "loops": [loop.variable for loop in (*nest.outer, nest.loop)],
            "elements": nest.elements,
            "vectorized": nest.is_vectorized,
        }
        for nest in loop_nests(text)
    ]


def _cpp_wrapper(text: str) -> Facts:
    found = with_reports(text, (), ())
    return found and {"mentions": dict(Counter(chain(*found.reports)))}


def _python_wrapper(text: str) -> Facts:
    timed = timed_wrapper("wrapper.py", text)
    return {
        "plan": plan_of(text, {}, lambda name: None),
        "kernels": [(one.line, one.kernel) for one in timed.lines] if timed else [],
    }


def _loop_body(text: str) -> Facts:
    body = read_body(text)
    return {
        "ranges": {name: str(size) for name, size in body.ranges.items()},
        "accesses": [(a.operation, a.buffer, str(a.index)) for a in body.accesses],
        "steps": [(step.name, step.expression) for step in steps_of(text)],
    }


def _graph(text: str) -> Facts:
    collectives, saved = collectives_in(text), saved_tensors(text)
    return {"lines": graph_lines(text), "collectives": collectives, "returned": saved}


def _message(text: str) -> Facts:
    return {
        "variable with NaN": refused_variable("RuntimeError", text, ""),
        "asked of a GPU": asked_in_vain(text),
        "crash": crash_place(text, ()),
    }


def _stage(line: str) -> Facts:
    kind, _, rest = line.partition(" ")
    if kind == "frame":
        return stage_of_frames([tuple(rest.split(" ", 1))])[0]
    return (stage_of_module if kind == "module" else stage_of_phase)(rest)


READERS: Mapping[str, Callable[[Path], Facts]] = {
    "cpp_loops": whole(_cpp_loops),
    "cpp_wrappers": whole(_cpp_wrapper),
    "frames": whole(frames_in),
    "fusion_reasons": each_line(lambda line: explain_reason(line).label),
    "guard_reasons": whole(read_guard),
    "index_expressions": each_line(lambda line: str(read_expression(line))),
    "log_choices": each_line(parse_choice),
    "log_lines": each_line(_log_line),
    "loop_bodies": whole(_loop_body),
    "messages": whole(_message),
    "module_paths": each_line(module_names),
    "package_messages": whole(translate),
    "package_wrappers": whole(read_wrapper),
    "printed_graphs": whole(_graph),
    "printed_stacks": _stacks,
    "python_wrappers": whole(_python_wrapper),
    "stage_lookup": each_line(_stage),
    "torch_trace": _events,
    "triton_indices": _triton_indices,
    "triton_kernels": _triton_kernels,
}


def plain(value: Facts) -> Facts:
    """Facts as JSON has them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return plain(value._asdict())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, frozenset)):
        return [plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


def samples() -> Iterator[Path]:
    """All sample texts."""
    for path in sorted(SAMPLES.glob("*/torch-*/*")):
        if path.suffix in (".txt", ".cpp"):
            yield path


def facts(path: Path) -> Facts:
    """The facts of a sample."""
    return plain(READERS[path.parts[-3]](path))


@pytest.mark.parametrize("path", list(samples()), ids=lambda path: "/".join(path.parts[-3:]))
def test_a_sample_is_read(path: Path) -> None:
    assert facts(path) == json.loads(path.with_suffix(".json").read_text())


def test_every_subject_has_a_sample() -> None:
    assert {path.parts[-3] for path in samples()} == set(READERS)


if __name__ == "__main__":
    for sample in samples():
        text = json.dumps(facts(sample), indent=1, ensure_ascii=False)
        sample.with_suffix(".json").write_text(text + "\n")
