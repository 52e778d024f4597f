"""Distinguishes line numbers, as `grep -n` adds them, from the ranks of a job system.

Both look like `17: `. But ranks repeat, and line numbers only grow.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inductoscope.errors import UsageError
from inductoscope.hangs.logs.lines import (
    AHEAD,
    BLOCK,
    TABLE,
    Event,
    FoundEvents,
    Line,
    pattern_of,
    read_events,
)
from inductoscope.hangs.logs.log_files import (
    STDIN,
    Log,
    compression,
    find_logs,
    open_log,
)
from inductoscope.hangs.logs.program import ProgramFold, Seen, SeenFailure
from inductoscope.processes.side_by_side import worker_context
from inductoscope.processes.status import own_cores
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.log_lines import LineMeaning
from inductoscope.torch_facts.log_text import (
    ASIDE,
    COLLECTIVE,
    Origin,
    Program,
)
from inductoscope.torch_facts.printed_stacks import LoggedStack
from inductoscope.torch_facts.stage_lookup import stage_of_frames
from inductoscope.torch_facts.torch_trace import Record

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess


_NUMBER = re.compile(r"(\d{1,6}):\s*")
# If this many only grew, they are line numbers; a short log needs fewer.
_ENOUGH, _FEW = 40, 4


# An event, its file, and its line there.
_Placed = tuple[Event, str, int]


class LineNumbers:
    """Passes events on, without the numbers of lines; at first it holds them back to see."""

    def __init__(self) -> None:
        self._held: list[_Placed] = []
        self._grown = 0
        self._last = -1
        self._found: bool | None = None

    def has_none(self, event: Event) -> bool:
        """Whether an event without a number can be taken at once."""
        return not event.label and not self._held

    def pass_on(self, event: Event, file: str, line: int) -> Iterator[_Placed]:
        """The events that can be judged now, in order."""
        if self._found is None:
            self._look_at(event)
            self._held.append((event, file, line))
            if self._found is None and self._grown:
                return
            yield from self._release()
        else:
            yield self._without_number(event), file, line

    def rest(self) -> Iterator[_Placed]:
        """What is still held back when the log ends."""
        if self._held:
            processes = {getattr(event, "process", 0) for event, _, _ in self._held} - {0}
            self._found = self._grown >= _FEW and len(processes) == 1
        yield from self._release()

    def _look_at(self, event: Event) -> None:
        number = _NUMBER.match(event.label)
        if number is None:
            return
        if int(number[1]) <= self._last:
            self._found = False
            return
        self._last = int(number[1])
        self._grown += 1
        if self._grown >= _ENOUGH:
            self._found = True

    def _release(self) -> Iterator[_Placed]:
        held, self._held = self._held, []
        yield from ((self._without_number(event), file, line) for event, file, line in held)

    def _without_number(self, event: Event) -> Event:
        number = _NUMBER.match(event.label) if self._found else None
        return event._replace(label=event.label[number.end() :]) if number else event


# --- Divides the events of one log among the programs that wrote it -------------------------------

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


# --- Reads logs: each part in turn, a large one with several processes ----------------------------

# Below this size a second process costs more than it saves.
PIECE = 16 << 20
_POLL_SECONDS = 0.25


@dataclass
class ReadFile:
    """One file that was read."""

    path: str
    lines: int = 0
    torch_lines: int = 0
    damage: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LogReading:
    """What the logs hold: the programs that wrote them, and the files."""

    programs: list[ProgramFold]
    files: list[ReadFile]

    @property
    def torch_lines(self) -> int:
        """How many lines torch wrote."""
        return sum(file.torch_lines for file in self.files)


def read_logs(paths: Sequence[str], *, cores: int | None = None) -> LogReading:
    """Read the logs at these paths; `cores` processes at most, all that there are by default."""
    cores = cores or len(own_cores())
    return _fold(find_logs(paths), lambda path, file: _read_file(path, file.damage, cores))


def read_log(log: Log) -> LogReading:
    """Read one log, in this process alone."""
    return _fold([log], lambda path, file: _read_file(path, file.damage, 1))


def wait_until_quiet(paths: Sequence[str], *, seconds: float | None) -> None:
    """Wait until Ctrl-C, or until no file at these paths has grown for so many seconds."""
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
    parts = [path for log in find_logs(paths) for path in log.parts if path != STDIN]
    found: dict[str, int] = {}
    for path in parts:
        with contextlib.suppress(OSError):  # It may be rotated away at this moment.
            found[path] = os.stat(path).st_size
    return found


def _fold(logs: list[Log], read: Callable[[str, ReadFile], Iterator[FoundEvents]]) -> LogReading:
    programs: list[ProgramFold] = []
    files: list[ReadFile] = []
    for log in logs:
        fold = LogFold(log.name)
        for path in log.parts:
            file = ReadFile(path)
            files.append(file)
            for found in read(path, file):
                _take(fold, found, file)
        fold.finish()
        programs += fold.programs
    return LogReading(programs, files)


def _take(fold: LogFold, found: FoundEvents, file: ReadFile) -> None:
    for line, event in found.events:
        fold.take(event, file.path, file.lines + line)
    file.lines += found.lines
    file.torch_lines += found.torch_lines


# --- one file -------------------------------------------------------------------------------------


def _read_file(path: str, damage: list[str], cores: int) -> Iterator[FoundEvents]:
    if path == STDIN:
        with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as file:
            yield from read_events(file.read, damage=damage)
        return
    try:
        size = os.stat(path).st_size
        in_pieces = cores > 1 and size > 2 * PIECE and not compression(path)
        if in_pieces:
            yield from _read_in_pieces(path, size, damage, cores)
            return
        with open_log(path) as file:
            # Of a compressed file that is cut, a large read would give nothing.
            read = getattr(file, "read1", file.read)
            yield from read_events(read, damage=damage)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}.") from error


def _read_in_pieces(path: str, size: int, damage: list[str], cores: int) -> Iterator[FoundEvents]:
    """Read pieces with several processes, each a few ahead of the fold, which takes them in order.

    Each reads every so many-th piece and writes what it found to its pipe, which holds it back
    when the fold is slower. No pool: its threads would take turns with the fold.
    """
    pieces = list(itertools.pairwise(_bounds(path, size)))
    context = worker_context()
    readers = [_start(context, path, pieces[first::cores]) for first in range(cores)]
    try:
        for number in range(len(pieces)):
            found, problems = _receive(readers[number % cores][1])
            damage += problems
            yield from found
    finally:
        for process, pipe in readers:
            pipe.close()
            process.terminate()
            process.join()


def _start(
    context: BaseContext, path: str, pieces: list[tuple[int, int]]
) -> tuple[BaseProcess, Connection]:
    receiver, sender = context.Pipe(duplex=False)
    arguments = (sender, path, pieces)
    process: BaseProcess = context.Process(target=_send_pieces, args=arguments)  # type: ignore[attr-defined]
    process.daemon = True
    process.start()
    sender.close()
    return process, receiver


def _send_pieces(pipe: Connection, path: str, pieces: list[tuple[int, int]]) -> None:
    with contextlib.suppress(BrokenPipeError):
        for piece in pieces:
            try:
                pipe.send_bytes(_packed(*read_piece(path, *piece)))
            except BrokenPipeError:
                raise
            except OSError as error:
                pipe.send_bytes(pickle.dumps(error))


def _packed(found: list[FoundEvents], damage: list[str]) -> bytes:
    """As plain tuples, which are pickled several times faster."""
    plain = [
        ([(line, type(event), tuple(event)) for line, event in f.events], f.lines, f.torch_lines)
        for f in found
    ]
    return pickle.dumps((plain, damage), pickle.HIGHEST_PROTOCOL)


def _receive(pipe: Connection) -> tuple[list[FoundEvents], list[str]]:
    try:
        received = pickle.loads(pipe.recv_bytes())
    except EOFError:
        raise OSError("a process that read it was ended") from None
    if isinstance(received, OSError):
        raise received
    plain, damage = received
    found = [
        FoundEvents([(line, kind._make(event)) for line, kind, event in events], *counts)
        for events, *counts in plain
    ]
    return found, damage


def read_piece(path: str, start: int, stop: int) -> tuple[list[FoundEvents], list[str]]:
    """The events of the lines that begin from `start` up to `stop`, both starts of lines."""
    damage: list[str] = []
    limit = stop + 2 * AHEAD
    with open(path, "rb", buffering=0) as file:
        file.seek(start)

        def read(size: int) -> bytes:
            return file.read(max(0, min(size, limit - file.tell())))

        return list(read_events(read, stop=stop - start, damage=damage)), damage


def _bounds(path: str, size: int) -> list[int]:
    """Where pieces begin, and the end of the file. Each is the start of a line."""
    found = [0]
    with open(path, "rb", buffering=0) as file:
        for offset in range(PIECE, size, PIECE):
            if offset > found[-1]:
                start = _next_line(file.seek, file.read, offset)
                if start is None:
                    break
                found.append(start)
    return [*found, size]


def _next_line(seek: Callable[[int], int], read: Callable[[int], bytes], offset: int) -> int | None:
    place = offset - 1
    seek(place)
    while block := read(BLOCK):
        end = block.find(b"\n")
        if end >= 0:
            return place + end + 1
        place += len(block)
    return None
