"""Reads logs: divides their events among programs, and a large file among CPU cores."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from inductoscope.errors import UsageError
from inductoscope.hangs.logs.lines import (
    AHEAD,
    TABLE,
    Event,
    FoundEvents,
    Line,
    Origin,
    Program,
    pattern_of,
    read_events,
)
from inductoscope.hangs.logs.log_files import STDIN, Log, decompressor, find_logs, open_log
from inductoscope.hangs.logs.program import ProgramFold, Seen, SeenFailure
from inductoscope.processes.side_by_side import several_at_once
from inductoscope.processes.status import own_cores
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_lines import LineMeaning
from inductoscope.torch_facts.log_text import ASIDE, COLLECTIVE
from inductoscope.torch_facts.printed_stacks import LoggedStack
from inductoscope.torch_facts.stage_lookup import stage_of_frames
from inductoscope.torch_facts.torch_trace import Record

# Below this size a second process costs more than it saves.
PIECE = 16 << 20
_POLL_SECONDS = 0.25


@dataclass
class ReadFile:
    path: str
    lines: int = 0
    torch_lines: int = 0
    damage: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LogReading:
    programs: list[ProgramFold]
    files: list[ReadFile]


def read_logs(logs: Sequence[Log], *, cores: int | None = None) -> LogReading:
    """Read logs with at most `cores` processes, by default one per core."""
    cores = cores or len(own_cores())
    return fold_logs(logs, lambda file: _read_file(file, cores))


def wait_until_quiet(paths: Sequence[str], *, seconds: float | None) -> None:
    """Wait until no file at these paths has grown for some seconds, or until Ctrl-C."""
    sizes, since = _sizes(paths), time.monotonic()
    try:
        while seconds is None or time.monotonic() - since < seconds:
            time.sleep(_POLL_SECONDS)
            now = _sizes(paths)
            if now != sizes:
                sizes, since = now, time.monotonic()
    except KeyboardInterrupt:
        return


def _sizes(paths: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for path in [path for log in find_logs(paths) for path in log.parts if path != STDIN]:
        with contextlib.suppress(OSError):  # It may be rotated away at this moment.
            found[path] = os.stat(path).st_size
    return found


def fold_logs(logs: Sequence[Log], read: Callable[[ReadFile], Iterable[FoundEvents]]) -> LogReading:
    """Return the programs of logs, from the events that `read` yields for each file."""
    programs: list[ProgramFold] = []
    files: list[ReadFile] = []
    for log in logs:
        fold = LogFold(log.name)
        for path in log.parts:
            file = ReadFile(path)
            files.append(file)
            for found in read(file):
                fold.take_all(found, file)
        programs += fold.programs
    return LogReading(programs, files)


# --- one file -------------------------------------------------------------------------------------


def _read_file(file: ReadFile, cores: int) -> Iterator[FoundEvents]:
    path = file.path
    if path == STDIN:
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as stream:
            yield from read_events(stream.read, file.damage)
        return
    try:
        size = os.stat(path).st_size
        if cores > 1 and size > 2 * PIECE and decompressor(path) is None:
            yield from _read_in_pieces(file, size, cores)
            return
        with open_log(path) as stream:
            yield from read_events(stream.read1, file.damage)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def _read_in_pieces(file: ReadFile, size: int, cores: int) -> Iterator[FoundEvents]:
    pieces = list(itertools.pairwise(_bounds(file.path, size)))
    with several_at_once(cores, len(pieces)) as map_:
        for found, damage in map_(partial(read_piece, file.path), pieces):
            file.damage += damage
            yield from found


def read_piece(path: str, piece: tuple[int, int]) -> tuple[list[FoundEvents], list[str]]:
    """Yield the events in a piece of a file; both ends are line starts."""
    damage: list[str] = []
    start, stop = piece
    with open(path, "rb", buffering=0) as file:
        file.seek(stop)
        following = file.read(AHEAD)
        file.seek(start)

        def read(size: int) -> bytes:
            return file.read(min(size, stop - file.tell()))

        return list(read_events(read, damage, following)), damage


def _bounds(path: str, size: int) -> list[int]:
    """Return the start of each piece, and the end of the file. Pieces start at line starts."""
    found = [0]
    with open(path, "rb") as file:
        while found[-1] + PIECE < size:
            file.seek(found[-1] + PIECE - 1)
            while (line := file.readline(AHEAD)) and not line.endswith(b"\n"):
                pass
            found.append(file.tell())
    return found if found[-1] == size else [*found, size]


# --- one log --------------------------------------------------------------------------------------

# A message of torchrun about a program that it started.
_LAUNCHER = "torch/distributed/elastic/"
_EXIT = re.compile(r"\(exitcode: (-?\d{1,3})\) .*\(pid: (\d{1,18})\)")
_LINE_NUMBER = re.compile(r"(\d{1,6}):\s*")
# If this many numbers only grow, they are line numbers; of one process, fewer are enough.
_MANY_NUMBERS, _FEW_NUMBERS = 40, 4


class LogFold:
    """A fold that divides the events of one log among the programs that wrote it."""

    def __init__(self, log: str) -> None:
        self.log = log
        self._current: dict[tuple[str, int], ProgramFold] = {}
        self._by_label: dict[str, ProgramFold] = {}
        self._all: list[ProgramFold] = []
        # Folds for events that one of several programs wrote, by label.
        self._shared: dict[str, ProgramFold] = {}
        # The last place where Python announced a traceback that does not end the program.
        self._aside: dict[str, tuple[str, int]] = {}
        self._is_numbered: bool | None = None

    @property
    def programs(self) -> list[ProgramFold]:
        """The programs in the order of their first lines."""
        return [program for program in self._all if not program.is_empty]

    def take_all(self, found: FoundEvents, file: ReadFile) -> None:
        if self._is_numbered is None and found.events:
            self._is_numbered = has_line_numbers([event for _, event in found.events])
        for line, event in found.events:
            if self._is_numbered:
                number = _LINE_NUMBER.match(event.label)
                event = event._replace(label=event.label[number.end() :] if number else event.label)
            self._take(event, file.path, file.lines + line)
        file.lines += found.lines
        file.torch_lines += found.torch_lines

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
        """Add an event without a header, which names no process."""
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
            seen = SeenFailure(event, origin, sure)
            program.take_failure(seen, aside=self._is_aside(event, origin))
        else:
            program.take_printed(event, origin, sure=sure)

    def _is_aside(self, failure: LoggedStack, origin: Origin) -> bool:
        file, line = self._aside.get(failure.label, ("", 0))
        announced = file == origin.file and 0 < origin.line - line <= 3
        return announced or failure.is_of_thread or failure.is_of_worker

    def _writers(self, label: str) -> list[ProgramFold]:
        """Return the programs that may have written a line with this label and no header."""
        latest = self._owner(label)
        same = [p for (name, _), p in self._current.items() if name == latest.program.label]
        running = [p for p in same if p.ending is None and not p.was_over_before(latest)]
        return running or [latest]

    def _fitting(self, event: LoggedStack | Line, writers: list[ProgramFold]) -> ProgramFold:
        """Return the program whose state fits the event, or one that represents all writers."""
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
                seen = Seen(origin, line.module, line.text)
                program.exit_code, program.exit = int(ended[1]), seen

    def _program(self, event: Line | Record) -> ProgramFold:
        key = (event.label, event.process)
        program = self._current.get(key)
        if program is not None:
            return program
        # Output with this label before torch's first line belongs to the same program.
        program = self._by_label.get(event.label)
        if program is None or program.program.process:
            # A process that writes a trace knows its rank only once its process group is made.
            has_rank = isinstance(event, Record) and bool(event.label)
            program = self._current.pop(("", event.process), None) if has_rank else None
        if program is None:
            program = self._new(Program(self.log, *key))
        program.program = Program(self.log, *key)
        self._current[key] = program
        return program

    def _program_of_line(self, line: Line) -> ProgramFold:
        program = self._program(line)
        pattern = pattern_of(line.pattern) if line.pattern else None
        begins = pattern is not None and pattern.meaning is LineMeaning.RUN
        if begins and (program.compiles or program.ending):
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

    def _owner(self, label: str) -> ProgramFold:
        """Return the last program with a label, for a line that names no process.

        A launcher labels every line, torch adds the rank only to its own, so the label of a program
        may be longer than that of its other lines.
        """
        if label in self._by_label:
            return self._by_label[label]
        same = [found for (name, _), found in self._current.items() if name == label]
        longer = [found for name, found in self._by_label.items() if name.startswith(label)]
        if same or len(longer) == 1:
            return (same or longer)[-1]
        program = self._by_label[label] = self._new(Program(self.log, label))
        return program


def has_line_numbers(events: Sequence[Event]) -> bool:
    """Check whether prefixes are line numbers, as `grep -n` adds, rather than ranks.

    Both look like `17: `, but ranks repeat, and line numbers only grow.
    """
    matches = [_LINE_NUMBER.match(event.label) for event in events]
    numbers = [int(match[1]) for match in matches if match]
    processes = {getattr(event, "process", 0) for event in events} - {0}
    enough = _FEW_NUMBERS if len(processes) == 1 else _MANY_NUMBERS
    return len(numbers) >= enough and all(a < b for a, b in itertools.pairwise(numbers))
