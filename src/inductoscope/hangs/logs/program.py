"""The log of one program, folded line by line: the progress of choices, compiles and phases."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple, TypeVar

from inductoscope.hangs.logs.lines import (
    AFTERWARDS,
    FAILED_CHOICE,
    SETTING,
    Line,
    Origin,
    Program,
    pattern_of,
    recognise,
)
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_choices import Choice, parse_choice, whole_choice
from inductoscope.torch_facts.log_lines import LineMeaning
from inductoscope.torch_facts.log_text import ASSEMBLER_KILLED, COLLECTIVE, CRASHED
from inductoscope.torch_facts.printed_stacks import LoggedStack
from inductoscope.torch_facts.stage_lookup import stage_of_frames
from inductoscope.torch_facts.torch_trace import Record


class Progress(str, Enum):
    SUBMITTED = "submitted"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    SKIPPED = "skipped"


_UNFINISHED = (Progress.SUBMITTED, Progress.STARTED)


@dataclass
class ChoiceState:
    text: str
    progress: Progress = Progress.SUBMITTED
    to_pool: bool = False
    seconds: float | None = None
    message: str = ""
    origins: list[Origin] = field(default_factory=list)

    @property
    def choice(self) -> Choice:
        return parse_choice(self.text)


class GroupState(str, Enum):
    SUBMITTED = "submitted"
    AWAITED = "awaited"
    COMPILED = "compiled"
    BENCHMARKING = "being benchmarked"
    OVER = "over"


@dataclass
class Group:
    """The choices of one operation."""

    origin: Origin
    announced: int | None = None
    threads: int | None = None
    operation: str = ""
    shapes: str = ""
    stage: GroupState = GroupState.SUBMITTED
    awaited_at: Origin | None = None
    last: Origin | None = None
    timed_out_after: int | None = None
    choices: dict[str, ChoiceState] = field(default_factory=dict)
    starts: int = 0  # How many are seen to have begun.
    cut: int = 0  # How many lines end before the choice that they name does.

    def _in(self, *wanted: Progress) -> list[ChoiceState]:
        return [state for state in self.choices.values() if state.progress in wanted]

    @property
    def finished(self) -> list[ChoiceState]:
        return self._in(Progress.FINISHED)

    @property
    def failed(self) -> list[ChoiceState]:
        return self._in(Progress.FAILED)

    @property
    def timed_out(self) -> list[ChoiceState]:
        return self._in(Progress.TIMED_OUT)

    @property
    def submitted(self) -> list[ChoiceState]:
        """The choices that were submitted to a compiler, in any state."""
        return [s for s in self.choices.values() if s.progress is not Progress.SKIPPED]

    @property
    def pending(self) -> list[ChoiceState]:
        """The unfinished choices while torch does not wait for them."""
        return self._in(*_UNFINISHED) if self.stage is GroupState.SUBMITTED else []

    @property
    def queued(self) -> list[ChoiceState]:
        """The choices that wait for a thread: they have not started, so they do not hang."""
        if self.stage is not GroupState.AWAITED or not self.starts:
            return []
        return [state for state in self._in(Progress.SUBMITTED) if not state.to_pool]

    @property
    def stuck(self) -> list[ChoiceState]:
        """The choices that are unfinished while the program waits for them.

        After a timeout the program still waits for the threads that hang, though no longer for
        the worker processes.
        """
        if self.stage is not GroupState.AWAITED:
            return []
        queued = {state.text for state in self.queued}
        open_ = [state for state in self._in(*_UNFINISHED) if state.text not in queued]
        return open_ + [state for state in self.timed_out if not state.to_pool]

    @property
    def unnamed(self) -> int:
        """The least number of unfinished choices without a name in the log (at level INFO)."""
        is_awaited = self.stage is GroupState.AWAITED
        if not is_awaited or self.announced is None or self.submitted_seen or self.cut:
            return 0
        return max(0, self.announced - len(self.choices))

    @property
    def is_illegible(self) -> bool:
        """Whether torch waits for the group and every line that names its choices is cut."""
        return self.stage is GroupState.AWAITED and bool(self.cut) and not self.choices

    @property
    def submitted_seen(self) -> bool:
        """Whether the log shows the submissions."""
        return any(s.progress in _UNFINISHED or len(s.origins) > 1 for s in self.choices.values())


# --- Which choices of which operation were submitted, finished, failed, or never finished ---------
#
# torch compiles the choices of one operation together, as a group, and may wait for it only much
# later. So an unfinished choice is stuck only if torch waits for its group and nothing later in
# the log shows that the wait is over; until torch waits for the group, it is pending.

# Finished groups are kept for display, but not all of them in a long log.
_MOST_OVER = 64


class AutotuneFold:
    def __init__(self) -> None:
        self._open: list[Group] = []
        self._over: list[Group] = []
        self._awaited: dict[str, Group] = {}
        self._operation: dict[str, tuple[str, str]] = {}
        self._waiting: dict[str, Origin] = {}
        self._error: dict[str, str] = {}

    @property
    def groups(self) -> list[Group]:
        """The groups that are kept, in the order in which they began."""
        found = [*self._over, *self._open]
        return sorted(found, key=lambda group: group.origin.line)

    def take(self, text: str, origin: Origin) -> None:
        pattern = recognise(text)
        if pattern is not None:
            self.take_line(pattern.head, text, origin)
        elif FAILED_CHOICE in text:
            self._failed(text, origin)

    def take_line(self, head: str, text: str, origin: Origin) -> None:
        """Add a message whose pattern is known."""
        if head == FAILED_CHOICE:
            self._failed(text, origin)
            return
        pattern = pattern_of(head)
        handler = _HANDLERS.get(pattern.meaning) if pattern and pattern.meaning else None
        if pattern is None or handler is None:
            return
        match = pattern.expression.match(text)
        values = match.groups() if match else (text[len(head) :],)
        if pattern.meaning in _NAMES_A_CHOICE:
            choice = self._named(values[0].removeprefix(" "), origin)
            if choice is None:
                return
            values = (choice, *values[1:])
        handler(self, values, origin)

    def _named(self, text: str, origin: Origin) -> str | None:
        """Return the choice that a line names; for a cut line, the only one that matches."""
        choice = whole_choice(text)
        if choice is not None:
            return choice
        known = {c for g in self._open for c in g.choices if c.startswith(text)}
        if len(known) == 1:
            return known.pop()
        group = self._awaited.get(origin.compile_id) or next(reversed(self._open), None)
        if group is not None:
            group.cut += 1
        return None

    # --- which group ------------------------------------------------------------------------------

    def _begin(self, origin: Origin) -> Group:
        group = Group(origin=origin, last=origin)
        self._open.append(group)
        return group

    def _latest(self, origin: Origin) -> Group:
        """Return the group of a submission: the last one of its compile."""
        for group in reversed(self._open):
            if group.origin.compile_id == origin.compile_id and group.stage is GroupState.SUBMITTED:
                return group
        return self._begin(origin)

    def _holding(self, text: str, origin: Origin) -> Group:
        """Return the group of a result. Threads write no compile id."""
        waiting = self._awaited.get(origin.compile_id)
        if waiting is not None and text in waiting.choices:
            return waiting
        holding = [group for group in self._open if text in group.choices]
        same = [g for g in holding if g.origin.compile_id == origin.compile_id]
        if same or holding:
            return (same or holding)[0]
        return waiting or (self._open[-1] if self._open else self._begin(origin))

    def _state(self, group: Group, text: str, origin: Origin) -> ChoiceState:
        group.last = origin
        state = group.choices.get(text)
        if state is None:
            state = group.choices[text] = ChoiceState(text)
        if len(state.origins) < 8:
            state.origins.append(origin)
        return state

    # --- handlers ---------------------------------------------------------------------------------

    def _group(self, values: tuple[str, ...], origin: Origin) -> None:
        group = self._begin(origin)
        group.announced = _whole(values[0])
        group.threads = _whole(values[1]) if len(values) > 1 else None

    def _submitted_to_pool(self, values: tuple[str, ...], origin: Origin) -> None:
        self._state(self._latest(origin), values[0], origin).to_pool = True

    def _submitted(self, values: tuple[str, ...], origin: Origin) -> None:
        self._state(self._latest(origin), values[0], origin)

    def _started(self, values: tuple[str, ...], origin: Origin) -> None:
        holding = [group for group in self._open if values[0] in group.choices]
        # A worker thread may log before the thread that submits.
        group = next(reversed(holding or self._open), None) or self._begin(origin)
        state = self._state(group, values[0], origin)
        group.starts += 1
        if state.progress is Progress.SUBMITTED:
            state.progress = Progress.STARTED

    def _skipped(self, values: tuple[str, ...], origin: Origin) -> None:
        group = self._latest(origin)
        if values[0] not in group.choices:
            self._state(group, values[0], origin).progress = Progress.SKIPPED

    def _finished(self, values: tuple[str, ...], origin: Origin) -> None:
        state = self._result(values[0], Progress.FINISHED, origin)
        state.seconds = _number(values[1]) if len(values) > 1 else None

    def _result(self, text: str, progress: Progress, origin: Origin) -> ChoiceState:
        state = self._state(self._confirm(text, origin), text, origin)
        state.progress = progress
        return state

    def _exception(self, values: tuple[str, ...], origin: Origin) -> None:
        if len(values) < 2:
            self._error[origin.compile_id] = values[0]
            return
        choice = self._named(values[1], origin)
        if choice is not None:
            self._fail(choice, values[0], origin)

    def _failed(self, text: str, origin: Origin) -> None:
        """Parse the last line of a multi-line message: 'rest of it for benchmark choice X'."""
        message, _, rest = text.rpartition(FAILED_CHOICE)
        first = self._error.pop(origin.compile_id, "")
        choice = self._named(rest, origin)
        if choice is None:
            return
        self._fail(choice, f"{first} {message}".strip().removeprefix("Exception "), origin)

    def _fail(self, choice: str, message: str, origin: Origin) -> None:
        state = self._result(choice, Progress.FAILED, origin)
        state.message = message[:2000]

    def _timed_out(self, values: tuple[str, ...], origin: Origin) -> None:
        self._result(values[0], Progress.TIMED_OUT, origin)

    def _time_out(self, values: tuple[str, ...], origin: Origin) -> None:
        group = self._awaited.get(origin.compile_id)
        if group is not None:
            group.timed_out_after = _whole(values[0])
            group.last = origin

    def _next_operation(self, values: tuple[str, ...], origin: Origin) -> None:
        shapes = values[1] if len(values) > 1 else ""
        self._operation[origin.compile_id] = (values[0], shapes)

    def _wait(self, values: tuple[str, ...], origin: Origin) -> None:
        """Note that torch waits for a group; the line does not say for which."""
        self._benchmarked(values, origin)
        self._waiting[origin.compile_id] = origin
        candidates = self._candidates(origin)
        if len(candidates) == 1:
            self._await(candidates[0], origin)

    def _candidates(self, origin: Origin) -> list[Group]:
        mine = [g for g in self._open if g.origin.compile_id == origin.compile_id]
        return [g for g in mine if g.stage is GroupState.SUBMITTED]

    def _await(self, group: Group, origin: Origin) -> None:
        group.stage = GroupState.AWAITED
        group.awaited_at = self._waiting.pop(origin.compile_id, None)
        group.last = origin
        group.operation, group.shapes = self._operation.pop(
            origin.compile_id, (group.operation, group.shapes)
        )
        self._awaited[origin.compile_id] = group

    def _confirm(self, text: str, origin: Origin) -> Group:
        """Return the group of a result, marked as awaited: results arrive only during a wait."""
        group = self._holding(text, origin)
        if group.stage is GroupState.SUBMITTED:
            current = self._awaited.get(group.origin.compile_id)
            if current is not None and current is not group:
                self._finish(current)
            self._await(group, origin)
        return group

    def _precompiled(self, values: tuple[str, ...], origin: Origin) -> None:
        self._waiting.pop(origin.compile_id, None)
        group = self._awaited.get(origin.compile_id)
        if group is None:
            # The choices were not precompiled, or the log is truncated.
            candidates = self._candidates(origin)
            group = candidates[0] if len(candidates) == 1 else None
        if group is not None and group.stage in (GroupState.SUBMITTED, GroupState.AWAITED):
            group.stage, group.last = GroupState.COMPILED, origin
            self._awaited[origin.compile_id] = group

    def _benchmarking(self, values: tuple[str, ...], origin: Origin) -> None:
        self._precompiled(values, origin)
        group = self._awaited.get(origin.compile_id)
        if group is None:
            group = self._awaited[origin.compile_id] = self._begin(origin)
        group.stage, group.last = GroupState.BENCHMARKING, origin
        if origin.compile_id in self._operation:
            group.operation, group.shapes = self._operation.pop(origin.compile_id)

    def _benchmarked(self, values: tuple[str, ...], origin: Origin) -> None:
        group = self._awaited.get(origin.compile_id)
        if group is not None:
            group.last = origin
            self._finish(group)

    def _finish(self, group: Group) -> None:
        group.stage = GroupState.OVER
        for compile_id in [key for key, value in self._awaited.items() if value is group]:
            del self._awaited[compile_id]
        if any(one is group for one in self._open):
            self._open = [one for one in self._open if one is not group]
            self._over = [*self._over, group][-_MOST_OVER:]

    def compile_is_over(self, compile_id: str) -> None:
        for group in [g for g in self._open if g.origin.compile_id == compile_id]:
            self._finish(group)
        self._waiting.pop(compile_id, None)

    def printed_table(self) -> None:
        """Finish the group whose results were printed; the table names no compile."""
        measured = [g for g in self._open if g.stage is GroupState.BENCHMARKING]
        measured = measured or [g for g in self._open if g.stage is GroupState.AWAITED]
        if len(measured) == 1:
            self._finish(measured[0])

    def is_busy(self, *, benchmarking: bool) -> bool:
        """Check whether torch waits for a group or benchmarks it."""
        waits = {GroupState.BENCHMARKING}
        if not benchmarking:
            waits = {GroupState.AWAITED, GroupState.COMPILED}
        return any(group.stage in waits for group in self._open)

    def unclear_waits(self) -> Iterator[tuple[Origin, list[Group]]]:
        """Yield waits for which the log does not identify the group."""
        for origin in self._waiting.values():
            candidates = self._candidates(origin)
            if candidates:
                yield origin, candidates


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


_NAMES_A_CHOICE = (
    LineMeaning.SUBMITTED_TO_POOL,
    LineMeaning.SUBMITTED_TO_THREAD,
    LineMeaning.STARTED,
    LineMeaning.SKIPPED,
    LineMeaning.FINISHED,
    LineMeaning.TIMED_OUT,
)
_Handler = Callable[[AutotuneFold, tuple[str, ...], Origin], None]
_HANDLERS: dict[LineMeaning, _Handler] = {
    LineMeaning.GROUP: AutotuneFold._group,
    LineMeaning.SUBMITTED_TO_POOL: AutotuneFold._submitted_to_pool,
    LineMeaning.SUBMITTED_TO_THREAD: AutotuneFold._submitted,
    LineMeaning.STARTED: AutotuneFold._started,
    LineMeaning.SKIPPED: AutotuneFold._skipped,
    LineMeaning.FINISHED: AutotuneFold._finished,
    LineMeaning.FAILED: AutotuneFold._exception,
    LineMeaning.TIMED_OUT: AutotuneFold._timed_out,
    LineMeaning.TIME_OUT: AutotuneFold._time_out,
    LineMeaning.OPERATION: AutotuneFold._next_operation,
    LineMeaning.WAITING: AutotuneFold._wait,
    LineMeaning.PRECOMPILED: AutotuneFold._precompiled,
    LineMeaning.BENCHMARKING: AutotuneFold._benchmarking,
    LineMeaning.BENCHMARKED: AutotuneFold._benchmarked,
}


# --- How far a compile got, by the phases in a TORCH_TRACE ----------------------------------------
#
# A program that is killed leaves phases open. One that is interrupted closes them all on its way
# out, the innermost first; then the compile has no result, and the phase that was closed first is
# where it was.

_MOST_COMPILES = 64
# After these exceptions of Dynamo a function runs in eager, unless it is compiled with fullgraph.
_FALLS_BACK = ("Unsupported", "UserError")


class Phase(NamedTuple):
    name: str
    began: Origin
    began_at: float
    ended: Origin | None = None
    ended_at: float = 0.0

    @property
    def seconds(self) -> float | None:
        return self.ended_at - self.began_at if self.ended is not None else None


@dataclass
class TracedCompile:
    compile_id: str
    open: list[Phase] = field(default_factory=list)
    # The last phase without a nested one.
    innermost: Phase | None = None
    # Whether the last record began a phase.
    has_begun: bool = False
    metrics: dict[str, str] = field(default_factory=dict)
    metrics_at: Origin | None = None
    last: Origin | None = None
    # Whether torch went on after a graph break.
    has_break: bool = False

    @property
    def failure(self) -> str:
        """The exception that ended the compile, from its metrics."""
        kind = self.metrics.get("fail_type", "null")
        return "" if kind in ("null", "None", "") else kind

    @property
    def may_fall_back(self) -> bool:
        """Whether the function runs in eager after this failure, unless fullgraph is set."""
        return self.failure in _FALLS_BACK

    @property
    def falls_back(self) -> bool:
        """Whether the trace shows that the function runs in eager after this failure."""
        if self.metrics.get("config_suppress_errors") == "true":
            return bool(self.failure)
        return self.may_fall_back and self.has_break

    @property
    def cut_short(self) -> bool:
        """Whether the compile ended with neither code nor an exception in its metrics."""
        has_code = self.metrics.get("has_guarded_code")
        return self.metrics_at is not None and has_code == "false" and not self.failure


class PhaseFold:
    def __init__(self) -> None:
        self._compiles: dict[str, TracedCompile] = {}
        self.finished = 0
        self.records = 0

    @property
    def compiles(self) -> list[TracedCompile]:
        """The unfinished compiles, and some finished ones."""
        return list(self._compiles.values())

    def take(self, record: Record, origin: Origin) -> None:
        self.records += 1
        # Phases that begin in one attempt end in the next.
        compile_id = record.compile_id.partition("_")[0]
        compile_ = self._compiles.get(compile_id)
        if compile_ is None:
            compile_ = self._compiles[compile_id] = TracedCompile(compile_id)
            _forget_one(self._compiles, lambda c: not (c.open or c.failure or c.cut_short))
        compile_.last = origin
        if record.kind == "begin":
            compile_.open.append(Phase(record.name, origin, record.seconds))
            compile_.has_begun = True
        elif record.kind == "end":
            self._end(compile_, record, origin)
        elif record.kind == "artifact":
            compile_.has_break = compile_.has_break or bool(record.name)
        elif record.kind in ("compilation_metrics", "bwd_compilation_metrics"):
            compile_.metrics = dict(record.values)
            compile_.metrics_at = origin
            self.finished += 1

    def _end(self, compile_: TracedCompile, record: Record, origin: Origin) -> None:
        open_ = compile_.open
        if all(phase.name != record.name for phase in open_):
            return  # It began before the log does.
        while (phase := open_.pop()).name != record.name:
            pass
        if compile_.has_begun and record.name not in AFTERWARDS:
            compile_.innermost = Phase(
                phase.name, phase.began, phase.began_at, origin, record.seconds
            )
        compile_.has_begun = False


_Compile = TypeVar("_Compile")


def _forget_one(compiles: dict[str, _Compile], is_done: Callable[[_Compile], bool]) -> None:
    """Drop the oldest compile that is done, once there are many."""
    if len(compiles) > _MOST_COMPILES:
        oldest = next((key for key, compile_ in compiles.items() if is_done(compile_)), None)
        if oldest is not None:
            del compiles[oldest]


# --- What one program wrote, folded line by line: how far each compile got, and how it ended ------

# Signals caused by the program itself; others are sent by someone else.
_FAULTS = (signal.SIGILL, signal.SIGBUS, signal.SIGFPE, signal.SIGSEGV)
_MOST_FAILURES = 8


@dataclass(frozen=True)
class Seen:
    """A line that may serve as evidence."""

    origin: Origin
    module: str
    text: str
    meaning: LineMeaning | None = None


@dataclass(frozen=True)
class SeenFailure:
    """A traceback, its place, and whether this program surely wrote it."""

    failure: LoggedStack
    origin: Origin
    sure: bool = True

    @property
    def is_crash(self) -> bool:
        return self.failure.error.startswith(CRASHED)

    @property
    def stage(self) -> tuple[str, int]:
        """The stage of the stack, and the index of the frame that determines it."""
        return stage_of_frames([(frame.file, frame.function) for frame in self.failure.frames])


@dataclass
class CompileProgress:
    """How far the compile of one id got, by its last line and its earlier steps."""

    compile_id: str
    last: Seen
    last_seen: dict[LineMeaning, Seen] = field(default_factory=dict)
    # Whether the log would show the end of the compile.
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
# These loggers report the end of a compile, so a log with their lines would show it. _ALONE is
# excepted, since it is often enabled alone.
_TELLING = ("torch/_inductor/", "torch/_dynamo/")
_ALONE = "torch/_inductor/select_algorithm.py"


class ProgramFold:
    """A fold of one program's log into everything that the answers need."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.first: Seen | None = None
        self.last: Seen | None = None
        self.ending: Seen | None = None
        self.autotune = AutotuneFold()
        self.phases = PhaseFold()
        self.failures: list[SeenFailure] = []
        self.first_error: Seen | None = None
        self.number_of_errors = 0
        self.settings: dict[str, bool] = {}
        self.last_seen: dict[LineMeaning, Seen] = {}
        self._compiles: dict[str, CompileProgress] = {}
        self._error_key: tuple[str, str] | None = None
        self._went_on = False
        self.collective: Seen | None = None
        self.assemblers_killed: list[Seen] = []
        # The exit code reported by a launcher, and the line that reports it.
        self.exit_code: int | None = None
        self.exit: Seen | None = None
        self.aside: SeenFailure | None = None
        # Functions that Dynamo gave up on, each with its place.
        self.at_limit: dict[str, str] = {}

    @property
    def compiles(self) -> list[CompileProgress]:
        """The compiles, ordered by last line."""
        return sorted(self._compiles.values(), key=lambda c: c.last.origin.line)

    @property
    def unfinished(self) -> CompileProgress | None:
        """The compile to which the program's last line belongs, unless it is done.

        None also for a compile whose end the log would not show.
        """
        last = self.compiles[-1] if self.compiles else None
        return last if last is not None and last.telling and not last.done else None

    @property
    def is_empty(self) -> bool:
        """Whether the program logged nothing about a compile."""
        found = self._compiles or self.phases.records or self.failures or self.last_seen
        return not found and self.collective is None

    @property
    def last_interrupt(self) -> SeenFailure | None:
        """The traceback of Ctrl-C, if that ended the program.

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
        """The exception that ended the program, unless that was Ctrl-C."""
        if not self.failures or self._went_on or self.failures[-1].failure.is_interrupt:
            return None
        return self.failures[-1]

    @property
    def has_failed(self) -> bool:
        """Whether the program failed by itself rather than by interruption."""
        by_itself = self.exit_code is not None and (
            self.exit_code > 0 or -self.exit_code in _FAULTS
        )
        return self.last_error is not None or (by_itself and self.last_interrupt is None)

    # --- lines ------------------------------------------------------------------------------------

    def take_line(self, line: Line, origin: Origin) -> None:
        pattern = pattern_of(line.pattern) if line.pattern else None
        meaning = pattern.meaning if pattern is not None else None
        seen = Seen(origin, line.module, line.text, meaning)
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
            # A program continues after a mere stack dump.
            was_dumped = bool(self.failures) and self.failures[-1].failure.is_dump
            self._went_on = self._went_on or was_dumped
        elif meaning is LineMeaning.INDUCTOR_DONE:
            self.autotune.compile_is_over(line.compile_id)
        else:
            self.autotune.take_line(line.pattern, line.text, seen.origin)

    def _take_function_at_limit(self, seen: Seen) -> None:
        """Parse the line that follows the message on a reached limit."""
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
        self.first_error = self.first_error or seen

    def _progress(self, line: Line, seen: Seen, meaning: LineMeaning | None) -> None:
        compile_id = line.compile_id
        compile_ = self._compiles.get(compile_id)
        if compile_ is None:
            compile_ = self._compiles[compile_id] = CompileProgress(compile_id, seen)
            _forget_one(self._compiles, lambda c: c.done)
        if not _same_message(compile_.last, seen):
            compile_.last = seen
        if meaning in _BOUNDS or _is_telling(line):
            compile_.telling = True
        if meaning is not None:
            compile_.last_seen.pop(meaning, None)  # The latest goes to the end.
            compile_.last_seen[meaning] = seen

    # --- which program it is ----------------------------------------------------------------------

    def was_over_before(self, other: ProgramFold) -> bool:
        """Check whether the last line comes before the first line of another program."""
        if self is other or self.last is None or other.first is None:
            return False
        last, first = self.last.origin, other.first.origin
        return last.file != first.file or last.line < first.line

    def may_be_in(self, stage: str) -> bool:
        """Check whether the program's own lines allow that it is in this stage now."""
        if stage in (stages.AUTOTUNE, stages.BENCHMARK):
            return self.autotune.is_busy(benchmarking=stage == stages.BENCHMARK)
        compiles = self.compiles
        is_compiling = bool(compiles) and not compiles[-1].done
        return is_compiling != (stage in (stages.RUNTIME, stages.USER))

    # --- others -----------------------------------------------------------------------------------

    def take_failure(self, seen: SeenFailure, *, aside: bool = False) -> None:
        """Add a stack that Python printed; `aside` if it does not end the program."""
        if aside:
            self.aside = seen
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
        seen = Seen(origin, "", line.text)
        if line.pattern == COLLECTIVE:
            self.collective = self.collective or seen
        elif line.pattern == ASSEMBLER_KILLED:
            self.assemblers_killed = [*self.assemblers_killed[-99:], seen]
        elif line.pattern in CRASHED:
            if self.last_crash is None:
                failure = LoggedStack(line.label, 1, line.text[:200], ())
                self.take_failure(SeenFailure(failure, origin, sure))
        else:
            self.autotune.printed_table()

    @property
    def last_crash(self) -> SeenFailure | None:
        error = self.last_error
        return error if error is not None and error.is_crash else None


def _is_telling(line: Line) -> bool:
    plain = line.level in ("V", "I") and not line.artifact
    return plain and line.module.startswith(_TELLING) and line.module != _ALONE


def _same_message(before: Seen, now: Seen) -> bool:
    """Check whether a line continues the message of the line before."""
    same = before.origin.time == now.origin.time and before.module == now.module
    return same and before.meaning is None and now.meaning is None
