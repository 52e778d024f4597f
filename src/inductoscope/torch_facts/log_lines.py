"""Lines of torch's logs: their meanings, and the patterns that recognise them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class LineMeaning(str, Enum):
    """Meaning of a log line."""

    RUN = "a program begins"
    TRACING = "Dynamo begins to trace"
    TRACED = "Dynamo has traced"
    RECOMPILE_LIMIT = "Dynamo compiles a function no more"
    BACKEND = "Dynamo calls the backend"
    BACKEND_DONE = "the backend has returned"
    INDUCTOR = "Inductor begins with a graph"
    INDUCTOR_DONE = "Inductor has compiled a graph"
    FROM_CACHE = "a compiled graph comes from the cache"
    SETTINGS = "the settings of Inductor follow"
    KERNEL = "a kernel for a GPU is generated"
    CODE = "the code of all kernels is generated"
    OUTPUT = "the kernels are compiled"
    CHOICES = "an operation is to be autotuned"
    PREPARING = "compilation of the choices is prepared"
    NOTHING_TO_PREPARE = "no choice is compiled ahead"
    PREPARED_BEFORE = "the same choices were submitted before"
    GROUP = "a group of choices begins"
    SKIPPED = "a choice is left out"
    SUBMITTED_TO_POOL = "a choice went to a worker process"
    SUBMITTED_TO_THREAD = "a choice went to a thread"
    STARTED = "a choice has begun"
    OPERATION = "the operation whose choices are awaited next"
    WAITING = "a group is awaited"
    COMPLETE = "some choice is compiled"
    FINISHED = "a choice is compiled"
    FAILED = "a choice failed"
    TIME_OUT = "the wait for a group timed out"
    TIMED_OUT = "a choice timed out"
    PRECOMPILED = "the wait for a group is over"
    BENCHMARKING = "choices are being benchmarked"
    BENCHMARKED = "choices are benchmarked"
    TABLE = "the result of autotuning"
    RUNNING = "a compiled kernel is run for the first time"
    ENDING = "the interpreter ends"


# --- The lines of torch's logs that we rely on, and whether a given torch still writes them -------
#
# torch promises nothing about the text of its logs. So each line is listed here once, as torch's
# source has it, and `check_pattern` looks it up in the source of the installed torch: a line
# missing from a log means nothing if torch no longer writes that line.

# Below this similarity two log texts share only words like "for choice".
_LEAST_LIKENESS = 0.5

# `log.exception` is ERROR with a traceback.
_CALLS = {
    "debug": "DEBUG",
    "info": "INFO",
    "warning": "WARNING",
    "error": "ERROR",
    "exception": "ERROR",
}

# The strings that a call begins with; a comment may precede them. Steps of the compiler are
# written through their own logger, and tables directly to stderr.
_LOG_CALL = re.compile(
    r"""(?:log\.(?P<call>\w+)\(|_step_logger\(\)\(\s*logging\.(?P<step>[A-Z]+),
        |sys\.(?P<stream>stderr)\.write\()
        \s*(?:\#[^\n]*\s*)?
        (?P<text>(?:f?(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')\s*)+)""",
    re.VERBOSE,
)
_LITERAL = re.compile(
    r"(?P<formatted>f?)(?P<quote>[\"'])(?P<text>(?:[^\"'\\\n]|\\.|(?!\2)[\"'])*)\2"
)
_FIELD = re.compile(r"\{[^{}]*\}")
_PLACEHOLDER = re.compile(r"%(?:\.\d+)?[sdf]")


@dataclass(frozen=True)
class LogPattern:
    """One log line: its text as in torch's source, and where and how it is written."""

    text: str
    level: str
    meaning: LineMeaning | None = None
    module: str = "torch/_inductor/select_algorithm.py"
    first: str = "2.11"  # the oldest torch in which the line was seen
    last: str = "2.15"  # the newest torch in which it was looked for
    gone: str = ""  # the first torch that no longer writes it

    def expected_in(self, version: str) -> bool:
        """Whether this version of torch should write the line; so should any newer than `last`."""
        if self.gone and release(version) >= release(self.gone):
            return False
        return release(version) >= release(self.first)

    @cached_property
    def head(self) -> str:
        """The text before the first placeholder."""
        return _PLACEHOLDER.split(self.text, maxsplit=1)[0]

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """Matches the line's text; one group per placeholder."""
        parts = [re.escape(part) for part in _PLACEHOLDER.split(self.text)]
        return re.compile("(.*)".join(parts), re.DOTALL)


class Presence(str, Enum):
    """Whether the installed torch still writes a log line."""

    FOUND = "found"
    LEVEL_CHANGED = "level changed"
    MISSING = "missing"
    NOT_EXPECTED = "not in this version"


@dataclass(frozen=True)
class PatternCheck:
    """Result of looking up one pattern in the source of one torch."""

    pattern: LogPattern
    presence: Presence
    line: int | None = None  # of the text, or of the nearest text
    level: str | None = None  # the level that the source gives it
    nearest: str | None = None  # the log text most similar to a missing one

    @property
    def ok(self) -> bool:
        return self.presence in (Presence.FOUND, Presence.NOT_EXPECTED)


PATTERNS: tuple[LogPattern, ...] = (
    LogPattern(
        "Multithreaded precompilation for %d choices using %d worker threads",
        "INFO",
        LineMeaning.GROUP,
    ),
    LogPattern("Skipping already seen choice: %s", "DEBUG", LineMeaning.SKIPPED),
    LogPattern(
        "Submitted triton async compile for choice: %s", "DEBUG", LineMeaning.SUBMITTED_TO_POOL
    ),
    LogPattern(
        "Submitted nvgemm subprocess precompile for choice: %s",
        "DEBUG",
        LineMeaning.SUBMITTED_TO_POOL,
        first="2.14",
    ),
    LogPattern("Submitted precompile for choice: %s", "DEBUG", LineMeaning.SUBMITTED_TO_THREAD),
    LogPattern("Precompiling choice with captured stdout: %s", "DEBUG", LineMeaning.STARTED),
    LogPattern("Waiting on futures", "DEBUG", LineMeaning.WAITING),
    LogPattern(
        "Precompilation complete for future: %s, elapsed time: %.02fs",
        "DEBUG",
        LineMeaning.COMPLETE,
    ),
    LogPattern("Precompiling benchmark choice %s took %.02fs", "INFO", LineMeaning.FINISHED),
    LogPattern("Exception %s for benchmark choice %s", "ERROR", LineMeaning.FAILED),
    LogPattern(
        "Precompilation timeout after %ds: %d of %d futures did not complete",
        "WARNING",
        LineMeaning.TIME_OUT,
    ),
    LogPattern("Marking choice as failed due to timeout: %s", "WARNING", LineMeaning.TIMED_OUT),
    LogPattern(
        "compile_threads set to %d", "INFO", LineMeaning.RUN, module="torch/_inductor/config.py"
    ),
    LogPattern(
        "torchdynamo start tracing %s %s:%s",
        "INFO",
        LineMeaning.TRACING,
        module="torch/_dynamo/symbolic_convert.py",
    ),
    LogPattern(
        "torchdynamo done tracing %s (%s)",
        "INFO",
        LineMeaning.TRACED,
        module="torch/_dynamo/symbolic_convert.py",
    ),
    LogPattern(
        "torch._dynamo hit config.%s (%s)\\n   function: %s\\n   last reason: %s\\nTo log all "
        'recompilation reasons, use TORCH_LOGS="recompiles".\\nTo diagnose recompilation issues, '
        "see %s",
        "WARNING",
        LineMeaning.RECOMPILE_LIMIT,
        module="torch/_dynamo/convert_frame.py",
    ),
    LogPattern(
        "calling compiler function %s",
        "INFO",
        LineMeaning.BACKEND,
        module="torch/_dynamo/output_graph.py",
    ),
    LogPattern(
        "done compiler function %s",
        "INFO",
        LineMeaning.BACKEND_DONE,
        module="torch/_dynamo/output_graph.py",
    ),
    LogPattern(
        "torchinductor compiling %s graph %s",
        "INFO",
        LineMeaning.INDUCTOR,
        module="torch/_inductor/compile_fx.py",
    ),
    LogPattern(
        "torchinductor done compiling %s graph %s",
        "INFO",
        LineMeaning.INDUCTOR_DONE,
        module="torch/_inductor/compile_fx.py",
    ),
    LogPattern(
        "fx graph cache hit for key %s",
        "INFO",
        LineMeaning.FROM_CACHE,
        module="torch/_inductor/codecache.py",
    ),
    LogPattern(
        "FX graph cache hash details for key %s:\\n%s",
        "DEBUG",
        LineMeaning.SETTINGS,
        gone="2.15",
        module="torch/_inductor/codecache.py",
    ),
    LogPattern(
        "Generating kernel code with kernel_name: %s",
        "DEBUG",
        LineMeaning.KERNEL,
        module="torch/_inductor/codegen/simd.py",
    ),
    LogPattern(
        "Finished codegen for all nodes. The list of kernel names available: %s",
        "DEBUG",
        LineMeaning.CODE,
        module="torch/_inductor/graph.py",
    ),
    LogPattern(
        "Output code written to: %s", "DEBUG", LineMeaning.OUTPUT, module="torch/_inductor/graph.py"
    ),
    LogPattern("Max autotune selects from %s choices.", "DEBUG", LineMeaning.CHOICES),
    LogPattern("Starting precompilation", "DEBUG", LineMeaning.PREPARING),
    LogPattern(
        "Precompilation timeout is None or <= 0, returning no_op",
        "DEBUG",
        LineMeaning.NOTHING_TO_PREPARE,
    ),
    LogPattern(
        "Found all %d timings in cache, returning no_op", "DEBUG", LineMeaning.NOTHING_TO_PREPARE
    ),
    LogPattern(
        "Precompile function found in cache, returning it", "DEBUG", LineMeaning.PREPARED_BEFORE
    ),
    LogPattern(
        "[BENCHMARK DEBUG] Starting autotuning for '%s' with shapes: %s, device: %s",
        "DEBUG",
        LineMeaning.OPERATION,
    ),
    LogPattern("Precompilation elapsed time: %.02fs", "DEBUG", LineMeaning.PRECOMPILED),
    LogPattern("Starting autotuning", "DEBUG", LineMeaning.BENCHMARKING),
    LogPattern("Autotuning elapsed time: %.02fs", "DEBUG", LineMeaning.BENCHMARKED),
    LogPattern("AUTOTUNE %s(%s)\\n", "STDERR", LineMeaning.TABLE),
    LogPattern(
        "Benchmark all input configs for %s, get:",
        "DEBUG",
        LineMeaning.RUNNING,
        module="torch/_inductor/runtime/triton_heuristics.py",
    ),
    LogPattern(
        "Cache Metrics:%s", "INFO", LineMeaning.ENDING, module="torch/_inductor/remote_cache.py"
    ),
)


def check_pattern(pattern: LogPattern, source: str, *, version: str) -> PatternCheck:
    """Look `pattern` up in `source`, the text of its module in torch `version`."""
    calls = _log_calls(source)
    for call in calls:
        if call.text == pattern.text:
            same = call.level == pattern.level
            presence = Presence.FOUND if same else Presence.LEVEL_CHANGED
            return PatternCheck(pattern, presence, line=call.line, level=call.level)
    if not pattern.expected_in(version):
        return PatternCheck(pattern, Presence.NOT_EXPECTED)
    nearest = _nearest(pattern.text, calls)
    if nearest is None:
        return PatternCheck(pattern, Presence.MISSING)
    return PatternCheck(pattern, Presence.MISSING, nearest.line, nearest.level, nearest.text)


@dataclass(frozen=True)
class _LogCall:
    text: str
    level: str
    line: int


def _log_calls(source: str) -> list[_LogCall]:
    return [
        _LogCall(
            text=_joined(match["text"]),
            level=_level(match),
            line=source.count("\n", 0, match.start("text")) + 1,
        )
        for match in _LOG_CALL.finditer(source)
        if match["call"] is None or match["call"] in _CALLS
    ]


def _level(match: re.Match[str]) -> str:
    if match["call"] is not None:
        return _CALLS[match["call"]]
    return str(match["step"] or match["stream"].upper())


def _joined(literals: str) -> str:
    """Adjacent strings as one; what a formatted one fills in is written %s, as logging has it."""
    return "".join(
        _FIELD.sub("%s", part["text"]) if part["formatted"] else part["text"]
        for part in _LITERAL.finditer(literals)
    )


def _nearest(text: str, calls: list[_LogCall]) -> _LogCall | None:
    texts = {call.text: call for call in calls}
    close = difflib.get_close_matches(text, texts, n=1, cutoff=_LEAST_LIKENESS)
    return texts[close[0]] if close else None


def release(version: str) -> tuple[int, ...]:
    """Release tuple for comparing torch versions: (2, 13) for 2.13.0+cpu."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else ()
