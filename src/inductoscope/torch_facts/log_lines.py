"""The log lines of torch that we use: their meanings, and the patterns that match them."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from enum import Enum
from functools import cached_property


class LineMeaning(str, Enum):
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

# The string literals at the start of a call; a comment may precede them. Compiler steps have
# their own logger, and tables go directly to stderr.
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
    """A log line: its text as in torch's source, and the module and call that write it."""

    text: str
    level: str
    meaning: LineMeaning | None = None
    module: str = "torch/_inductor/select_algorithm.py"
    first: str = "2.11"  # the oldest torch in which the line was seen
    last: str = "2.15"  # the newest torch in which it was looked for
    gone: str = ""  # the first torch that no longer writes it

    def expected_in(self, version: str) -> bool:
        """Check whether this torch version should write the line, even if newer than `last`."""
        if self.gone and release(version) >= release(self.gone):
            return False
        return release(version) >= release(self.first)

    @cached_property
    def head(self) -> str:
        """The text before the first placeholder."""
        return _PLACEHOLDER.split(self.text, maxsplit=1)[0]

    @cached_property
    def expression(self) -> re.Pattern[str]:
        """A regular expression for the line's text, with one group per placeholder."""
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
    pattern: LogPattern
    presence: Presence
    line: int | None = None  # of the text, or of the nearest text
    level: str | None = None  # the level that the source gives it
    nearest: str | None = None  # the log text most similar to a missing one

    @property
    def ok(self) -> bool:
        return self.presence in (Presence.FOUND, Presence.NOT_EXPECTED)


# Level, meaning and text of each line, by module.
_LINES = {
    "torch/_inductor/select_algorithm.py": (
        (
            "INFO",
            LineMeaning.GROUP,
            "Multithreaded precompilation for %d choices using %d worker threads",
        ),
        ("DEBUG", LineMeaning.SKIPPED, "Skipping already seen choice: %s"),
        ("DEBUG", LineMeaning.SUBMITTED_TO_POOL, "Submitted triton async compile for choice: %s"),
        (
            "DEBUG",
            LineMeaning.SUBMITTED_TO_POOL,
            "Submitted nvgemm subprocess precompile for choice: %s",
        ),
        ("DEBUG", LineMeaning.SUBMITTED_TO_THREAD, "Submitted precompile for choice: %s"),
        ("DEBUG", LineMeaning.STARTED, "Precompiling choice with captured stdout: %s"),
        ("DEBUG", LineMeaning.WAITING, "Waiting on futures"),
        (
            "DEBUG",
            LineMeaning.COMPLETE,
            "Precompilation complete for future: %s, elapsed time: %.02fs",
        ),
        ("INFO", LineMeaning.FINISHED, "Precompiling benchmark choice %s took %.02fs"),
        ("ERROR", LineMeaning.FAILED, "Exception %s for benchmark choice %s"),
        (
            "WARNING",
            LineMeaning.TIME_OUT,
            "Precompilation timeout after %ds: %d of %d futures did not complete",
        ),
        ("WARNING", LineMeaning.TIMED_OUT, "Marking choice as failed due to timeout: %s"),
        ("DEBUG", LineMeaning.CHOICES, "Max autotune selects from %s choices."),
        ("DEBUG", LineMeaning.PREPARING, "Starting precompilation"),
        (
            "DEBUG",
            LineMeaning.NOTHING_TO_PREPARE,
            "Precompilation timeout is None or <= 0, returning no_op",
        ),
        ("DEBUG", LineMeaning.NOTHING_TO_PREPARE, "Found all %d timings in cache, returning no_op"),
        ("DEBUG", LineMeaning.PREPARED_BEFORE, "Precompile function found in cache, returning it"),
        (
            "DEBUG",
            LineMeaning.OPERATION,
            "[BENCHMARK DEBUG] Starting autotuning for '%s' with shapes: %s, device: %s",
        ),
        ("DEBUG", LineMeaning.PRECOMPILED, "Precompilation elapsed time: %.02fs"),
        ("DEBUG", LineMeaning.BENCHMARKING, "Starting autotuning"),
        ("DEBUG", LineMeaning.BENCHMARKED, "Autotuning elapsed time: %.02fs"),
        ("STDERR", LineMeaning.TABLE, "AUTOTUNE %s(%s)\\n"),
    ),
    "torch/_inductor/config.py": (("INFO", LineMeaning.RUN, "compile_threads set to %d"),),
    "torch/_dynamo/symbolic_convert.py": (
        ("INFO", LineMeaning.TRACING, "torchdynamo start tracing %s %s:%s"),
        ("INFO", LineMeaning.TRACED, "torchdynamo done tracing %s (%s)"),
    ),
    "torch/_dynamo/convert_frame.py": (
        (
            "WARNING",
            LineMeaning.RECOMPILE_LIMIT,
            "torch._dynamo hit config.%s (%s)\\n   function: %s\\n   last reason: %s\\nTo log all "
            'recompilation reasons, use TORCH_LOGS="recompiles".\\nTo diagnose recompilation '
            "issues, see %s",
        ),
    ),
    "torch/_dynamo/output_graph.py": (
        ("INFO", LineMeaning.BACKEND, "calling compiler function %s"),
        ("INFO", LineMeaning.BACKEND_DONE, "done compiler function %s"),
    ),
    "torch/_inductor/compile_fx.py": (
        ("INFO", LineMeaning.INDUCTOR, "torchinductor compiling %s graph %s"),
        ("INFO", LineMeaning.INDUCTOR_DONE, "torchinductor done compiling %s graph %s"),
    ),
    "torch/_inductor/codecache.py": (
        ("INFO", LineMeaning.FROM_CACHE, "fx graph cache hit for key %s"),
        ("DEBUG", LineMeaning.SETTINGS, "FX graph cache hash details for key %s:\\n%s"),
    ),
    "torch/_inductor/codegen/simd.py": (
        ("DEBUG", LineMeaning.KERNEL, "Generating kernel code with kernel_name: %s"),
    ),
    "torch/_inductor/graph.py": (
        (
            "DEBUG",
            LineMeaning.CODE,
            "Finished codegen for all nodes. The list of kernel names available: %s",
        ),
        ("DEBUG", LineMeaning.OUTPUT, "Output code written to: %s"),
    ),
    "torch/_inductor/runtime/triton_heuristics.py": (
        ("DEBUG", LineMeaning.RUNNING, "Benchmark all input configs for %s, get:"),
    ),
    "torch/_inductor/remote_cache.py": (("INFO", LineMeaning.ENDING, "Cache Metrics:%s"),),
}
# Lines that not every release writes: the first release, and the one that dropped them.
_ONLY_IN = {
    "Submitted nvgemm subprocess precompile for choice: %s": {"first": "2.14"},
    "FX graph cache hash details for key %s:\\n%s": {"gone": "2.15"},
}
PATTERNS = tuple(
    LogPattern(text, level, meaning, module, **_ONLY_IN.get(text, {}))
    for module, lines in _LINES.items()
    for level, meaning, text in lines
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
    texts = {call.text: call for call in calls}
    close = difflib.get_close_matches(pattern.text, texts, n=1, cutoff=_LEAST_LIKENESS)
    if not close:
        return PatternCheck(pattern, Presence.MISSING)
    nearest = texts[close[0]]
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
    """Join adjacent string literals; the fields of an f-string become %s, as in logging."""
    return "".join(
        _FIELD.sub("%s", part["text"]) if part["formatted"] else part["text"]
        for part in _LITERAL.finditer(literals)
    )


def release(version: str) -> tuple[int, ...]:
    """Return the release tuple of a torch version: (2, 13) for 2.13.0+cpu."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return (int(numbers[1]), int(numbers[2])) if numbers else ()
