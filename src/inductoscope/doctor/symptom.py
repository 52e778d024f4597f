"""How a run of the program ended badly: whether two runs failed alike, and what failed in them.

A trial proves something about a failure only if it fails in the same way: with the same exit code
and error, and with numbers that are off by as much. What the program measured with a clock is not a
wrong number.
"""

from __future__ import annotations

import ast
import contextlib
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from inductoscope.doctor.runs import ProgramRun
from inductoscope.model.entities import Recording
from inductoscope.torch_facts.frames import frames_in, innermost_users, is_users
from inductoscope.torch_facts.messages import COMPARISON_FAILED, last_lines

# --- whether two runs failed alike ----------------------------------------------------------------

# NaN and infinity stay: they are no other number, but another failure.
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?", re.IGNORECASE)
_ADDRESS = re.compile(r"\b0x[0-9a-f]+\b")
# A trial explains numbers that are off by at most so many times what it is off by.
_AS_FAR_OFF = 10.0
# Lines at the end of the output that are compared.
_MOST_LINES = 50


def fails_alike(failed: ProgramRun, trial: ProgramRun, good: ProgramRun | None = None) -> bool:
    """Check whether a trial failed as the program did; `good` is a run that ended well.

    The exit code, the last line, and the user's line that raised must be the same. Numbers vary,
    but what is far off in the program must be far off in the trial, too.
    """
    if trial.was_ended or failed.ending.signal != trial.ending.signal:
        return False
    if failed.ending.exit_code != trial.ending.exit_code:
        return False
    if _masked(_last_words(failed)) != _masked(_last_words(trial)):
        return False
    if _raised_at(failed) != _raised_at(trial):
        return False
    return _is_as_far_off(failed, trial, good)


def says_the_same(failed: ProgramRun, eager: ProgramRun) -> bool:
    """Check whether a failure in eager is that of the compiled program.

    A compiler wraps the error that eager raises, but quotes its message.
    """
    if failed.ending.exit_code == 0:
        return True  # Another run failed.
    message = _last_words(eager).partition(": ")[2] or _last_words(eager)
    return _masked(message) in _masked(failed.output)


def _last_words(run: ProgramRun) -> str:
    return "".join(last_lines(run.output, 1))


def _masked(line: str) -> str:
    return _NUMBER.sub("#", _ADDRESS.sub("#", line))


def _raised_at(run: ProgramRun) -> str:
    """Return the user's innermost line in the last traceback, if the run ended with one."""
    _, found, traceback = run.output.rpartition("Traceback (most recent call last)")
    frame = innermost_users(frames_in(traceback), lambda frame: frame.file) if found else None
    return str(frame) if frame is not None else ""


def _is_as_far_off(failed: ProgramRun, trial: ProgramRun, good: ProgramRun | None) -> bool:
    said, tried = (COMPARISON_FAILED.findall(run.output) for run in (failed, trial))
    if said and tried:
        return _float(said[-1]) <= _AS_FAR_OFF * _float(tried[-1])
    if good is None:
        return True
    printed = [last_lines(run.output, _MOST_LINES) for run in (failed, trial, good)]
    if len({tuple(map(_masked, lines)) for lines in printed}) > 1:
        return True  # The lines do not correspond.
    numbers = [_NUMBER.findall("\n".join(lines)) for lines in printed]
    values, tried_values, right = (list(map(_float, found)) for found in numbers)
    largest = max(map(_distance, values, right), default=0.0)
    return largest <= _AS_FAR_OFF * max(map(_distance, tried_values, right), default=0.0)


def _distance(value: float, right: float) -> float:
    """Return how far a number is off, relative to the right one."""
    return abs(value - right) / max(abs(right), 1e-30)


def _float(text: str) -> float:
    value = float(text)
    return math.inf if math.isnan(value) else value  # NaN is as far off as can be.


# --- what failed: numbers, or the time that something took ----------------------------------------


def numbers_that_differ(failed: ProgramRun, good: ProgramRun, again: ProgramRun) -> str:
    """Return a line of numbers in which a failed run differs from a good one; "" if there is none.

    Everything before it must be the same, and a run that failed again must print the same line:
    the time of day differs in every run.
    """
    comparison = COMPARISON_FAILED.search(failed.output)
    if comparison is not None:
        return comparison[0].strip()
    lines, right, same = (last_lines(run.output, _MOST_LINES) for run in (failed, good, again))
    for line, other in zip(lines, right, strict=False):
        if _masked(line) != _masked(other):
            return ""
        if line != other and line in same:
            return f"{line.strip()} (in eager: {other.strip()})"
    return ""


# Functions that read a clock, by their full names.
_CLOCKS = re.compile(
    r"time\.(time|perf_counter|monotonic|process_time|thread_time)(_ns)?"
    r"|timeit\.(timeit|repeat|default_timer|Timer)"
    r"|torch\.utils\.benchmark\.Timer|torch\.cuda\.Event|(.+\.)?do_bench\w*"
)
_LONGEST_SOURCE = 1 << 20


def clock_reads(command: Sequence[str], recording: Recording) -> Iterator[str]:
    """Yield the lines of the program that read a clock, as file:line."""
    scripts = [word for word in command if word.endswith(".py")][:1]
    places = [compile_.file for compile_ in recording.compiles if compile_.file]
    for file in dict.fromkeys([*scripts, *filter(is_users, places)]):
        with contextlib.suppress(OSError, SyntaxError, ValueError):
            source = Path(file).read_text("utf-8")
            if len(source) <= _LONGEST_SOURCE:
                yield from (f"{file}:{line}" for line in _clock_lines(ast.parse(source)))


def _clock_lines(tree: ast.Module) -> Iterator[int]:
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.asname: each.name for each in node.names if each.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {e.asname or e.name: f"{node.module}.{e.name}" for e in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, dot, rest = ast.unparse(node.func).partition(".")
            if _CLOCKS.fullmatch(f"{names.get(first, first)}{dot}{rest}"):
                yield node.lineno
