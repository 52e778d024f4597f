"""What one program wrote, folded line by line: how far each compile got, and how it ended."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from inductoscope.logs.autotune import AutotuneFold
from inductoscope.logs.lines import (
    ASSEMBLER_KILLED,
    COLLECTIVE,
    SETTING,
    Event,
    Line,
    pattern_of,
)
from inductoscope.logs.origin import Origin, Program
from inductoscope.logs.phases import PhaseFold
from inductoscope.logs.records import Record
from inductoscope.logs.signs import Sign
from inductoscope.logs.stages import stage_of_frames
from inductoscope.logs.tracebacks import Failure

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
    sign: Sign | None = None


@dataclass(frozen=True)
class SeenFailure:
    """A traceback, where it stands, and whether it is surely of this program."""

    failure: Failure
    origin: Origin
    sure: bool = True

    @property
    def stage(self) -> tuple[str, int]:
        """The stage that it was in, and the frame that says so."""
        return stage_of_frames([(frame.file, frame.function) for frame in self.failure.frames])


@dataclass
class CompileProgress:
    """How far the compile of one id got, by its last line and what was seen of it."""

    compile_id: str
    last: Seen
    signs: dict[Sign, Seen] = field(default_factory=dict)
    function: str = ""

    @property
    def done(self) -> bool:
        """Whether the last thing that was begun has ended."""
        bounds = [sign for sign in self.signs if sign in _BOUNDS]
        if not bounds:
            return Sign.OUTPUT in self.signs
        return bounds[-1] in (Sign.INDUCTOR_DONE, Sign.BACKEND_DONE)


_BOUNDS = (
    Sign.TRACING,
    Sign.TRACED,
    Sign.BACKEND,
    Sign.BACKEND_DONE,
    Sign.INDUCTOR,
    Sign.INDUCTOR_DONE,
)
_RUNS_AGAIN = (Sign.RUN,)


class ProgramFold:
    """Everything that matters of one program."""

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
        self.signs: dict[Sign, Seen] = {}
        self.compiles_done = 0
        self._compiles: OrderedDict[str, CompileProgress] = OrderedDict()
        self._error_key: tuple[str, str] | None = None
        self._went_on = False
        self.collective: Seen | None = None
        self.assemblers_killed: list[Seen] = []

    @property
    def compiles(self) -> list[CompileProgress]:
        """Compiles, the one with the last line at the end."""
        return sorted(self._compiles.values(), key=lambda c: c.last.origin.line)

    @property
    def is_empty(self) -> bool:
        """Whether it wrote nothing of its own about a compile."""
        found = self._compiles or self.phases.records or self.failures or self.signs
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
        in_torch = [seen for seen in interrupts if seen.stage[0] != "user"]
        return (in_torch or interrupts)[-1]

    @property
    def last_error(self) -> SeenFailure | None:
        """The exception that ended it, unless that was Ctrl-C."""
        if not self.failures or self._went_on or self.failures[-1].failure.is_interrupt:
            return None
        return self.failures[-1]

    # --- lines ------------------------------------------------------------------------------------

    def take_line(self, line: Line, origin: Origin) -> None:
        """Take a line of torch's own."""
        pattern = pattern_of(line.pattern) if line.pattern else None
        sign = pattern.sign if pattern is not None else None
        seen = Seen(origin, line.module, line.level, line.text, sign)
        self.first = self.first or seen
        if self.last is None or not _same_message(self.last, seen):
            self.last = seen
        if line.pattern:
            self._error_key = (origin.time, line.module)
        if line.pattern == SETTING:
            name, _, value = line.text.partition("=")
            self.settings[name] = value == "True"
        elif line.pattern:
            self._take_sign(line, sign, seen)
        elif line.level in "EC":
            self._take_error(seen)
        if line.compile_id:
            self._went_on = self._went_on or self.ending is None
            self._progress(line.compile_id, seen, sign)

    def _take_sign(self, line: Line, sign: Sign | None, seen: Seen) -> None:
        if sign is not None:
            self.signs[sign] = seen
        if sign is Sign.ENDING:
            self.ending = seen
        elif sign is Sign.INDUCTOR_DONE:
            self.autotune.compile_is_over(line.compile_id)
        else:
            self.autotune.take_line(line.pattern, line.text, seen.origin)

    def _take_error(self, seen: Seen) -> None:
        key = (seen.origin.time, seen.module)
        if key == self._error_key:
            return  # A further line of the same message.
        self._error_key = key
        self.number_of_errors += 1
        if len(self.errors) >= 2 * _MOST_ERRORS:
            del self.errors[_MOST_ERRORS]
        self.errors.append(seen)

    def _progress(self, compile_id: str, seen: Seen, sign: Sign | None) -> None:
        compile_ = self._compiles.get(compile_id)
        if compile_ is None:
            compile_ = self._compiles[compile_id] = CompileProgress(compile_id, seen)
            self._forget()
        if not _same_message(compile_.last, seen):
            compile_.last = seen
        if sign is Sign.INDUCTOR_DONE:
            self.compiles_done += 1
        if sign is Sign.TRACING:
            compile_.function = seen.text.partition("start tracing ")[2]
        if sign is not None:
            compile_.signs.pop(sign, None)  # The latest goes to the end.
            compile_.signs[sign] = seen

    def _forget(self) -> None:
        if len(self._compiles) <= _MOST_COMPILES:
            return
        for compile_id, compile_ in self._compiles.items():
            if compile_.done:
                del self._compiles[compile_id]
                return

    # --- others -----------------------------------------------------------------------------------

    def take_record(self, record: Record, origin: Origin) -> None:
        """Take a record of a trace."""
        self.phases.take(record, origin)

    def take_failure(self, seen: SeenFailure) -> None:
        """Take a traceback that Python printed."""
        self._went_on = False
        self.failures.append(seen)
        if len(self.failures) > _MOST_FAILURES:
            del self.failures[1]

    def take_printed(self, line: Line, origin: Origin) -> None:
        """Take a line with no header."""
        seen = Seen(origin, "", "", line.text)
        if line.pattern == COLLECTIVE:
            self.collective = self.collective or seen
        elif line.pattern == ASSEMBLER_KILLED:
            self.assemblers_killed = [*self.assemblers_killed[-99:], seen]
        else:
            self.autotune.printed_table()


def _same_message(before: Seen, now: Seen) -> bool:
    """Whether a line only goes on with the message of the line before."""
    same = before.origin.time == now.origin.time and before.module == now.module
    return same and before.sign is None and now.sign is None


class LogFold:
    """Divides the events of one log among the programs that wrote it."""

    def __init__(self, log: str) -> None:
        self.log = log
        self._current: dict[tuple[str, int], ProgramFold] = {}
        self._by_label: dict[str, ProgramFold] = {}
        self._all: list[ProgramFold] = []

    @property
    def programs(self) -> list[ProgramFold]:
        """In the order of their first lines."""
        return [program for program in self._all if not program.is_empty]

    def take(self, event: Event, file: str) -> None:
        """Take the next event."""
        if isinstance(event, Failure):
            program = self._owner(event.label)
            sure = sum(label == event.label for label, _ in self._current) <= 1
            origin = Origin(program.program, file, event.line)
            program.take_failure(SeenFailure(event, origin, sure))
            return
        if isinstance(event, Line) and not event.module:
            program = self._owner(event.label)
            program.take_printed(event, Origin(program.program, file, event.line))
            return
        program = self._program(event)
        origin = Origin(program.program, file, event.line, event.time, event.compile_id)
        if isinstance(event, Record):
            program.take_record(event, origin)
        else:
            program.take_line(event, origin)

    def _program(self, event: Line | Record) -> ProgramFold:
        key = (event.label, event.process)
        program = self._current.get(key)
        if program is None:
            program = self._adopted(event) or self._new(Program(self.log, *key))
            self._current[key] = program
        elif isinstance(event, Line) and self._begins_anew(program, event):
            program = self._new(Program(self.log, *key, program.program.run + 1))
            self._current[key] = program
        if not isinstance(event, Line) or event.pattern or event.level in "EC":
            self._by_label[event.label] = program
        return program

    def _new(self, name: Program) -> ProgramFold:
        program = ProgramFold(name)
        self._all.append(program)
        return program

    def _adopted(self, event: Line | Record) -> ProgramFold | None:
        """What was printed before a program's first line of torch's is its own."""
        program = self._by_label.get(event.label)
        if program is None or program.program.process:
            return None
        program.program = Program(self.log, event.label, event.process)
        return program

    def _begins_anew(self, program: ProgramFold, line: Line) -> bool:
        pattern = pattern_of(line.pattern) if line.pattern else None
        begins = pattern is not None and pattern.sign in _RUNS_AGAIN
        return begins and bool(program.compiles or program.ending)

    def _owner(self, label: str) -> ProgramFold:
        """Lines with no header name no process: they go to the last one of their label.

        A launcher marks every line, torch marks only its own with the rank, so a program may be
        known by a longer label than its other lines have.
        """
        program = self._by_label.get(label)
        if program is None:
            same = [found for (name, _), found in self._current.items() if name == label]
            program = same[-1] if same else None
        if program is None:
            longer = [found for name, found in self._by_label.items() if name.startswith(label)]
            program = longer[0] if len(longer) == 1 else None
        if program is None:
            program = self._by_label[label] = self._new(Program(self.log, label))
        return program
