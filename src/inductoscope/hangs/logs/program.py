"""What one program wrote, folded line by line: how far each compile got, and how it ended."""

from __future__ import annotations

import re
import signal
from collections import OrderedDict
from dataclasses import dataclass, field, replace

from inductoscope.hangs.logs.autotune import AutotuneFold
from inductoscope.hangs.logs.headerless_lines import ASSEMBLER_KILLED, COLLECTIVE, CRASHED
from inductoscope.hangs.logs.lines import SETTING, Line, pattern_of
from inductoscope.hangs.logs.origin import Origin, Program
from inductoscope.hangs.logs.phases import PhaseFold
from inductoscope.hangs.logs.tracebacks import LoggedStack
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.line_meanings import LineMeaning
from inductoscope.vocabulary.stage_lookup import stage_of_frames

# Signals that a program gets for what it did; others are sent to it.
_FAULTS = (signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
_MOST_COMPILES = 64
_MOST_FAILURES = 8
_MOST_ERRORS = 4


@dataclass(frozen=True)
class Seen:
    """A line that may serve as evidence."""

    origin: Origin
    module: str
    level: str
    text: str
    meaning: LineMeaning | None = None


@dataclass(frozen=True)
class SeenFailure:
    """A traceback, where it is, and whether this program surely wrote it."""

    failure: LoggedStack
    origin: Origin
    sure: bool = True

    @property
    def is_crash(self) -> bool:
        """Whether the system ended it, not an exception."""
        return self.failure.error.startswith(CRASHED)

    @property
    def stage(self) -> tuple[str, int]:
        """The stage that it was in, and the frame that says so."""
        return stage_of_frames([(frame.file, frame.function) for frame in self.failure.frames])


@dataclass
class CompileProgress:
    """How far the compile of one id got, by its last line and what was seen of it."""

    compile_id: str
    last: Seen
    last_seen: dict[LineMeaning, Seen] = field(default_factory=dict)
    function: str = ""
    # Whether the log would show its end.
    telling: bool = False

    @property
    def done(self) -> bool:
        """Whether the last step that began has ended, or Dynamo gave up on it."""
        if LineMeaning.RECOMPILE_LIMIT in self.last_seen:
            return True
        bounds = [meaning for meaning in self.last_seen if meaning in _BOUNDS]
        if not bounds:
            return LineMeaning.OUTPUT in self.last_seen
        return bounds[-1] in _ENDS


_ENDS = (LineMeaning.INDUCTOR_DONE, LineMeaning.FROM_CACHE, LineMeaning.BACKEND_DONE)
_AT_LIMIT = re.compile(r"function: '(?P<name>[^']+)' \((?P<place>.+:\d+)\)")
_BOUNDS = (
    *_ENDS,
    LineMeaning.TRACING,
    LineMeaning.TRACED,
    LineMeaning.BACKEND,
    LineMeaning.INDUCTOR,
)
# Their loggers tell when a compile is done, so a log with their lines would show that. One of
# these is often asked for alone.
_TELLING = ("torch/_inductor/", "torch/_dynamo/")
_ALONE = "torch/_inductor/select_algorithm.py"


class ProgramFold:
    """Everything the answers need to know about one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.first: Seen | None = None
        self.last: Seen | None = None
        self.ending: Seen | None = None
        self.autotune = AutotuneFold()
        self.phases = PhaseFold()
        self.failures: list[SeenFailure] = []
        self.errors: list[Seen] = []
        self.number_of_errors = 0
        self.settings: dict[str, bool] = {}
        self.last_seen: dict[LineMeaning, Seen] = {}
        self.compiles_done = 0
        self._compiles: OrderedDict[str, CompileProgress] = OrderedDict()
        self._error_key: tuple[str, str] | None = None
        self._went_on = False
        self.collective: Seen | None = None
        self.assemblers_killed: list[Seen] = []
        # What a launcher says about its end: the code, and the line.
        self.exit_code: int | None = None
        self.exit: Seen | None = None
        self.asides: list[SeenFailure] = []
        # Functions that Dynamo gave up on, each with its place.
        self.at_limit: dict[str, str] = {}

    @property
    def compiles(self) -> list[CompileProgress]:
        """Compiles, the one with the last line at the end."""
        return sorted(self._compiles.values(), key=lambda c: c.last.origin.line)

    @property
    def unfinished(self) -> CompileProgress | None:
        """The compile that the program was in with its last line, unless it was done.

        Unknown for a compile whose end the log would not show.
        """
        last = self.compiles[-1] if self.compiles else None
        return last if last is not None and last.telling and not last.done else None

    @property
    def is_empty(self) -> bool:
        """Whether it wrote nothing about a compile."""
        found = self._compiles or self.phases.records or self.failures or self.last_seen
        return not found and self.collective is None

    @property
    def last_interrupt(self) -> SeenFailure | None:
        """The traceback of Ctrl-C, if that is what ended it.

        Of several, the last one that was in torch: at the end Python waits for its threads, and
        that wait is often interrupted as well.
        """
        if not self.failures or self._went_on or not self.failures[-1].failure.is_interrupt:
            return None
        interrupts = [seen for seen in self.failures if seen.failure.is_interrupt]
        in_torch = [seen for seen in interrupts if seen.stage[0] != stages.USER]
        return (in_torch or interrupts)[-1]

    @property
    def last_error(self) -> SeenFailure | None:
        """The exception that ended it, unless that was Ctrl-C."""
        if not self.failures or self._went_on or self.failures[-1].failure.is_interrupt:
            return None
        return self.failures[-1]

    @property
    def has_failed(self) -> bool:
        """Whether it ended by itself, with a failure."""
        by_itself = self.exit_code is not None and (
            self.exit_code > 0 or -self.exit_code in _FAULTS
        )
        return self.last_error is not None or (by_itself and self.last_interrupt is None)

    # --- lines ------------------------------------------------------------------------------------

    def take_line(self, line: Line, origin: Origin) -> None:
        """Take a line that torch wrote."""
        pattern = pattern_of(line.pattern) if line.pattern else None
        meaning = pattern.meaning if pattern is not None else None
        seen = Seen(origin, line.module, line.level, line.text, meaning)
        self.first = self.first or seen
        if self.last is None or not _same_message(self.last, seen):
            self.last = seen
        if line.pattern:
            self._error_key = (origin.time, line.module)
        if line.pattern == SETTING:
            name, _, value = line.text.partition("=")
            self.settings[name] = value == "True"
        elif line.pattern:
            self._take_meaning(line, meaning, seen)
        elif line.level in "EC":
            self._take_error(seen)
        elif line.level == "W":
            self._take_function_at_limit(seen)
        if line.compile_id:
            self._went_on = self._went_on or self.ending is None
            self._progress(line, seen, meaning)

    def _take_meaning(self, line: Line, meaning: LineMeaning | None, seen: Seen) -> None:
        if meaning is not None:
            self.last_seen[meaning] = seen
        if meaning is LineMeaning.ENDING:
            self.ending = seen
            self._went_on = self._went_on or (bool(self.failures) and self._was_dumped)
        elif meaning is LineMeaning.INDUCTOR_DONE:
            self.autotune.compile_is_over(line.compile_id)
        else:
            self.autotune.take_line(line.pattern, line.text, seen.origin)

    def _take_function_at_limit(self, seen: Seen) -> None:
        """The line after the one that says that a limit is reached."""
        limit = self.last_seen.get(LineMeaning.RECOMPILE_LIMIT)
        found = _AT_LIMIT.fullmatch(seen.text.strip())
        is_next = limit is not None and limit.origin.time == seen.origin.time
        if found and is_next and len(self.at_limit) < _MOST_FAILURES:
            self.at_limit[found["name"]] = found["place"]

    def _take_error(self, seen: Seen) -> None:
        key = (seen.origin.time, seen.module)
        if key == self._error_key:
            return  # A further line of the same message.
        self._error_key = key
        self.number_of_errors += 1
        if len(self.errors) >= 2 * _MOST_ERRORS:
            del self.errors[_MOST_ERRORS]
        self.errors.append(seen)

    @property
    def _was_dumped(self) -> bool:
        """Whether the last stack is only a dump, after which a program goes on."""
        return self.failures[-1].failure.is_dump

    def _progress(self, line: Line, seen: Seen, meaning: LineMeaning | None) -> None:
        compile_id = line.compile_id
        compile_ = self._compiles.get(compile_id)
        if compile_ is None:
            compile_ = self._compiles[compile_id] = CompileProgress(compile_id, seen)
            self._forget()
        if not _same_message(compile_.last, seen):
            compile_.last = seen
        if meaning is LineMeaning.INDUCTOR_DONE:
            self.compiles_done += 1
        if meaning is LineMeaning.TRACING:
            compile_.function = seen.text.partition("start tracing ")[2]
        if meaning in _BOUNDS or _is_telling(line):
            compile_.telling = True
        if meaning is not None:
            compile_.last_seen.pop(meaning, None)  # The latest goes to the end.
            compile_.last_seen[meaning] = seen

    def _forget(self) -> None:
        if len(self._compiles) <= _MOST_COMPILES:
            return
        for compile_id, compile_ in self._compiles.items():
            if compile_.done:
                del self._compiles[compile_id]
                return

    # --- which program it is ----------------------------------------------------------------------

    def was_over_before(self, other: ProgramFold) -> bool:
        """Whether its last line comes before the first line of another program."""
        if self is other or self.last is None or other.first is None:
            return False
        last, first = self.last.origin, other.first.origin
        return last.file != first.file or last.line < first.line

    def may_be_in(self, stage: str) -> bool:
        """Whether its own lines allow that it is in this stage now."""
        if stage in (stages.AUTOTUNE, stages.BENCHMARK):
            return self.autotune.is_busy(benchmarking=stage == stages.BENCHMARK)
        compiles = self.compiles
        is_compiling = bool(compiles) and not compiles[-1].done
        return is_compiling != (stage in (stages.RUNTIME, stages.USER))

    # --- others -----------------------------------------------------------------------------------

    def take_failure(self, seen: SeenFailure, *, aside: bool = False) -> None:
        """Take a stack that Python printed; `aside` if it does not end the program."""
        if aside:
            self.asides = [*self.asides[-_MOST_FAILURES:], seen]
            return
        crash = self.last_crash
        if crash is not None and seen.failure.is_dump:
            seen = replace(crash, failure=crash.failure._replace(frames=seen.failure.frames))
            del self.failures[-1]
        self._went_on = False
        self.failures.append(seen)
        if len(self.failures) > _MOST_FAILURES:
            del self.failures[1]

    def take_printed(self, line: Line, origin: Origin, *, sure: bool) -> None:
        """Take a line without a header."""
        seen = Seen(origin, "", "", line.text)
        if line.pattern == COLLECTIVE:
            self.collective = self.collective or seen
        elif line.pattern == ASSEMBLER_KILLED:
            self.assemblers_killed = [*self.assemblers_killed[-99:], seen]
        elif line.pattern in CRASHED:
            self._crashed(line, origin, sure)
        else:
            self.autotune.printed_table()

    def _crashed(self, line: Line, origin: Origin, sure: bool) -> None:
        if self.last_crash is None:
            failure = LoggedStack(line.label, 1, line.text[:200], ())
            self.take_failure(SeenFailure(failure, origin, sure))

    @property
    def last_crash(self) -> SeenFailure | None:
        """The crash that ended it."""
        error = self.last_error
        return error if error is not None and error.is_crash else None

    def take_exit(self, code: int, seen: Seen) -> None:
        """Take what a launcher says about how it ended."""
        self.exit_code, self.exit = code, seen


def _is_telling(line: Line) -> bool:
    plain = line.level in ("V", "I") and not line.artifact
    return plain and line.module.startswith(_TELLING) and line.module != _ALONE


def _same_message(before: Seen, now: Seen) -> bool:
    """Whether a line continues the message of the line before."""
    same = before.origin.time == now.origin.time and before.module == now.module
    return same and before.meaning is None and now.meaning is None
