"""Reads logs: each part in turn, a large one with several processes."""

from __future__ import annotations

import contextlib
import itertools
import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from inductoscope.errors import UsageError
from inductoscope.hangs.logs.blocks import AHEAD, BLOCK, read_events
from inductoscope.hangs.logs.files import STDIN, Log, compression, find_logs, open_log
from inductoscope.hangs.logs.fold import LogFold
from inductoscope.hangs.logs.lines import FoundEvents
from inductoscope.hangs.logs.program import ProgramFold
from inductoscope.processes.cores import own_cores
from inductoscope.processes.side_by_side import worker_context

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext
    from multiprocessing.process import BaseProcess

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
