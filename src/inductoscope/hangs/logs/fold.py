"""Divides the events of one log among the programs that wrote it."""

from __future__ import annotations

import re

from inductoscope.hangs.logs.headerless_lines import ASIDE, COLLECTIVE
from inductoscope.hangs.logs.lines import TABLE, Event, Line, pattern_of
from inductoscope.hangs.logs.numbered import LineNumbers
from inductoscope.hangs.logs.origin import Origin, Program
from inductoscope.hangs.logs.program import ProgramFold, Seen, SeenFailure
from inductoscope.hangs.logs.records import Record
from inductoscope.hangs.logs.tracebacks import LoggedStack
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.line_meanings import LineMeaning
from inductoscope.vocabulary.stage_lookup import stage_of_frames

_RUNS_AGAIN = (LineMeaning.RUN,)
# What torchrun says about a program that it started.
_LAUNCHER = "torch/distributed/elastic/"
_EXIT = re.compile(r"\(exitcode: (-?\d{1,3})\) .*\(pid: (\d{1,18})\)")


class LogFold:
    """Builds the programs of one log."""

    def __init__(self, log: str) -> None:
        self.log = log
        self._current: dict[tuple[str, int], ProgramFold] = {}
        self._by_label: dict[str, ProgramFold] = {}
        self._all: list[ProgramFold] = []
        self._numbers = LineNumbers()
        # What one of several programs wrote, by label.
        self._shared: dict[str, ProgramFold] = {}
        # Where Python last said that the next traceback does not end a program.
        self._aside: dict[str, tuple[str, int]] = {}

    @property
    def programs(self) -> list[ProgramFold]:
        """In the order of their first lines."""
        return [program for program in self._all if not program.is_empty]

    def take(self, event: Event, file: str, line: int) -> None:
        """Take the next event, which is on this line of the file."""
        if self._numbers.has_none(event):
            self._take(event, file, line)
            return
        for passed in self._numbers.pass_on(event, file, line):
            self._take(*passed)

    def finish(self) -> None:
        """The log has ended."""
        for passed in self._numbers.rest():
            self._take(*passed)

    def _take(self, event: Event, file: str, line: int) -> None:
        if isinstance(event, Record):
            program = self._by_label[event.label] = self._program(event)
            origin = Origin(program.program, file, line, event.time, event.compile_id)
            program.phases.take(event, origin)
        elif isinstance(event, LoggedStack) or not event.module:
            self._take_unmarked(event, file, line)
        else:
            program = self._program_of_line(event)
            origin = Origin(program.program, file, line, event.time, event.compile_id)
            program.take_line(event, origin)
            if event.level == "E" and event.module.startswith(_LAUNCHER):
                self._take_exit(event, origin)

    def _take_unmarked(self, event: LoggedStack | Line, file: str, line: int) -> None:
        """Take what has no header, and so names no process."""
        if isinstance(event, Line) and event.pattern == ASIDE:
            self._aside[event.label] = (file, line)
            return
        if isinstance(event, LoggedStack) and event.is_of_launcher and self.programs:
            return  # It says that a program ended, and those that did are here.
        writers = self._writers(event.label)
        program = writers[0] if len(writers) == 1 else self._fitting(event, writers)
        origin = Origin(program.program, file, line)
        sure = len(writers) == 1
        if isinstance(event, LoggedStack):
            program.take_failure(
                SeenFailure(event, origin, sure), aside=self._is_aside(event, origin)
            )
        else:
            program.take_printed(event, origin, sure=sure)

    def _is_aside(self, failure: LoggedStack, origin: Origin) -> bool:
        file, line = self._aside.get(failure.label, ("", 0))
        announced = file == origin.file and 0 < origin.line - line <= 3
        return announced or failure.is_of_thread or failure.is_of_worker

    def _writers(self, label: str) -> list[ProgramFold]:
        """The programs that may have written a line with this label and no header."""
        latest = self._owner(label)
        same = [p for (name, _), p in self._current.items() if name == latest.program.label]
        running = [p for p in same if p.ending is None and not p.was_over_before(latest)]
        return running or [latest]

    def _fitting(self, event: LoggedStack | Line, writers: list[ProgramFold]) -> ProgramFold:
        """The program whose lines fit; otherwise one that represents all of them."""
        if isinstance(event, LoggedStack):
            stage = stage_of_frames([(frame.file, frame.function) for frame in event.frames])[0]
        else:
            stage = {COLLECTIVE: stages.RUNTIME, TABLE: stages.BENCHMARK}.get(
                event.pattern, stages.NO_STAGE
            )
        fitting = [program for program in writers if program.may_be_in(stage)]
        if isinstance(event, LoggedStack) and event.is_interrupt:
            # Ctrl-C reaches all of them, and each prints its own.
            fitting = [p for p in fitting if p.last_interrupt is None][:1] or fitting[:1]
        if len(fitting) == 1:
            return fitting[0]
        label = event.label
        if label not in self._shared:
            self._shared[label] = self._new(Program(self.log, label))
        return self._shared[label]

    def _take_exit(self, line: Line, origin: Origin) -> None:
        ended = _EXIT.search(line.text)
        if ended is None:
            return
        for (_, process), program in self._current.items():
            if process == int(ended[2]):
                seen = Seen(origin, line.module, line.level, line.text)
                program.take_exit(int(ended[1]), seen)

    def _program(self, event: Line | Record) -> ProgramFold:
        key = (event.label, event.process)
        program = self._current.get(key)
        if program is None:
            program = self._adopted(event) or self._without_rank(event)
            program = program or self._new(Program(self.log, *key))
            self._current[key] = program
        return program

    def _program_of_line(self, line: Line) -> ProgramFold:
        program = self._program(line)
        if self._begins_anew(program, line):
            key = (line.label, line.process)
            program = self._new(Program(self.log, *key, program.program.run + 1))
            self._current[key] = program
        if line.pattern or line.level in "EC":
            self._by_label[line.label] = program
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

    def _without_rank(self, event: Line | Record) -> ProgramFold | None:
        """A process that writes a trace knows its rank only once its process group is made."""
        if not isinstance(event, Record) or not event.label:
            return None
        program = self._current.pop(("", event.process), None)
        if program is not None:
            program.program = Program(self.log, event.label, event.process)
        return program

    def _begins_anew(self, program: ProgramFold, line: Line) -> bool:
        pattern = pattern_of(line.pattern) if line.pattern else None
        begins = pattern is not None and pattern.meaning in _RUNS_AGAIN
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
