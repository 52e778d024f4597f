"""Runs of the user's program under the doctor's instructions, each into its own recording.

A run is watched from outside while it lasts. Runs are counted, and compared with one another.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inductoscope.doctor.compute_sanitizer import MemoryCheck, check_memory
from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.finding import Claim, FailureFinding, claim_of, if_any_failure
from inductoscope.doctor.instructions import CACHES, FOLDER, STOPPED, Instructions, RunCondition
from inductoscope.errors import ToolFailure
from inductoscope.launch.environment import (
    CACHE_VARIABLE,
    private_cache,
    private_cache_without_scope,
)
from inductoscope.launch.program import environment_for, record_ending, start_or_discard
from inductoscope.launch.users_cache import CacheContent, cache_with, caches_with_files
from inductoscope.launch.users_cache import folder as users_folder
from inductoscope.model.fold import load
from inductoscope.processes.children import start_group
from inductoscope.processes.ending import (
    Started,
    end_started,
    end_with_descendants,
    hold,
    processes_below,
)
from inductoscope.processes.memory import MemoryUse, MemoryWatch
from inductoscope.processes.stack_signal import written_stacks
from inductoscope.processes.stacks import ask_for_stacks
from inductoscope.processes.status import is_alive
from inductoscope.profiling.compile_growth import MeasuredGrowth
from inductoscope.recording.codec import decode
from inductoscope.recording.events import (
    NOT_RAISED,
    CallableCheck,
    CallsUnchecked,
    Check,
    ClaimMade,
    CompileEnd,
    CompileStart,
    Entry,
    Event,
    GraphState,
    GrowthMeasured,
    Launched,
    ProcessEnd,
    Said,
)
from inductoscope.recording.layout import CACHE, stream_paths
from inductoscope.recording.location import create_recording
from inductoscope.recording.privacy import without_secrets
from inductoscope.recording.reader import StreamReader
from inductoscope.recording.writer import StreamWriter, describe_launcher
from inductoscope.recording.written import written_events
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import last_lines
from inductoscope.wording import count_of

if TYPE_CHECKING:
    from inductoscope.hangs.watch.scene import StallDiagnosis
    from inductoscope.hangs.watch.stall import Stall
    from inductoscope.model.entities import Ending, Recording


Say = Callable[[str], None]

_TICK = 0.25
_TIME_TO_WRITE = 0.1
# Seconds between progress messages.
_SILENCE = 15.0
_RUNNING = "the program is still running"
# The number of stacks requested from a stalled process; functions on all of them are looping.
_LOOKS = 12
_TIME_FOR_INPUT = 2.0
# Seconds for the program's other processes to go on after one of them has investigated.
_TIME_TO_END = 20.0
_OUTPUT = "output.txt"
# Lines of output that a verdict quotes.
_LAST_WORDS = 12


def output_of(recording: Path) -> Path:
    return recording / FOLDER / _OUTPUT


@dataclass(frozen=True)
class ProgramRun:
    """The outcome of a run, and whether the doctor had to end it."""

    ending: Ending
    folder: Path
    stalled: bool = False
    over_time: bool = False
    # Ended on the user's request once all calls to be checked had been made.
    calls_done: bool = False
    # The stalls, as seen from outside just before the run was ended.
    diagnosis: StallDiagnosis | None = None
    # The failure found inside the program; None if there is none.
    finding: FailureFinding | None = None
    # Who held how much of it when memory was scarcest.
    memory: MemoryUse | None = None

    @property
    def was_ended(self) -> bool:
        """Whether the doctor ended the program."""
        return self.stalled or self.over_time or self.calls_done

    @property
    def failed(self) -> bool:
        """Whether the program itself failed, instead of being ended by the doctor."""
        return self.ending.exit_code != 0 and not self.was_ended

    @property
    def ended_well(self) -> bool:
        """Whether the program ended by itself, with exit code 0."""
        return self.ending.exit_code == 0 and not self.was_ended

    @property
    def output(self) -> str:
        """The end of the program's output."""
        with contextlib.suppress(OSError):
            data = output_of(self.folder).read_bytes()[-20000:]
            return data.decode("utf-8", "replace")
        return ""

    @property
    def last_words(self) -> str:
        """The last lines of its output, without warnings."""
        return "\n".join(last_lines(self.output, _LAST_WORDS))

    @functools.cached_property
    def recording(self) -> Recording:
        """The recording, which is complete."""
        return load(self.folder)

    @property
    def functions_that_differ(self) -> list[CallableCheck]:
        """Compiled functions that gave a different result from their Python code."""
        checks = self.recording.callable_checks
        return [check for check in checks if check.verdict == "differs"]

    @property
    def functions_that_do_not_raise(self) -> list[CallableCheck]:
        """Compiled functions that returned, though their Python code raised in a fork."""
        checks = self.recording.callable_checks
        return [check for check in checks if check.verdict == NOT_RAISED]

    def has_right_call(self, function: str, call: int) -> bool:
        """Whether a call of a compiled function gave the same result as its Python code."""
        checks = self.recording.callable_checks
        return (function, call, "right") in [(c.function, c.call, c.verdict) for c in checks]

    def stacks_of(self, pid: int) -> str:
        """Return the last stacks that one of the program's processes wrote."""
        return written_stacks(self.folder, pid)


@dataclass(frozen=True)
class RunLimits:
    stall: float = 60.0
    seconds: float = 3600.0
    # Whether to end the run once all calls to be checked have been made.
    stops_after_calls: bool = False


@dataclass(frozen=True)
class Listener:
    say: Say
    # Called once the program has started.
    on_started: Callable[[], None] = lambda: None
    # Called with the finding whenever there is a new claim.
    finding_grew: Callable[[FailureFinding], None] = lambda finding: None
    # Returns whether the examination is over, so that a run on another thread has to end.
    is_over: Callable[[], bool] = lambda: False


def run_watched(
    command: Sequence[str],
    folder: Path,
    instructions: Instructions,
    *,
    cache: Path,
    stdin: Path | None,
    limits: RunLimits,
    listener: Listener,
) -> ProgramRun:
    """Run `command` to its end, or until it stalls; its output goes into the folder."""
    (folder / FOLDER).mkdir(exist_ok=True)
    inside = instructions.inside
    scope = environment_for(folder, os.environ, fresh=False) if inside else os.environ
    environment = {**scope, **cache_variables(cache, inside=inside), **instructions.environment()}
    if not instructions.has(CACHES) and instructions.backend != "off":
        environment |= cache_with(
            instructions.cache, cache, os.environ, without=instructions.cache_without
        )
    stream = StreamWriter(folder, first_event=describe_launcher)
    started = time.monotonic()
    with output_of(folder).open("wb") as output, _input(stdin) as given:
        child = start_or_discard(
            folder,
            lambda: start_group(command, environment=environment, stdin=given, stdout=output),
        )
        stream.emit(Launched(pid=child.pid, command=tuple(without_secrets(command))))
        reason = _EndReason.INTERRUPTED
        followed, memory = FollowedRun(folder, listener), MemoryWatch(child.pid)
        try:
            listener.on_started()
            reason = _watch(child, followed, memory, limits, is_checked=instructions.inside)
        finally:
            end_with_descendants(child)
            end_started(followed.held, grace=0.0)  # Their launcher may have died before.
            if reason is not _EndReason.INTERRUPTED:
                followed.look(is_last=True)  # Nothing writes any more, so no claim is missed.
            finding = if_any_failure(followed.finding)
            is_stopped = reason is _EndReason.ENDED and child.returncode == STOPPED
            if is_stopped and finding is not None:
                reason = _EndReason.FOUND
            seconds = time.monotonic() - started
            ending = record_ending(stream, child.pid, child.returncode, seconds, reason.value)
    if reason is _EndReason.INTERRUPTED:
        raise ToolFailure("The program was not run to its end: the examination was over.")
    return ProgramRun(
        ending,
        folder,
        stalled=reason is _EndReason.STALLED,
        over_time=reason is _EndReason.OVER_TIME,
        calls_done=reason is _EndReason.CALLS_DONE,
        diagnosis=followed.diagnosis,
        finding=finding,
        memory=memory.seen(),
    )


def cache_variables(cache: Path, *, inside: bool) -> dict[str, str]:
    """Return variables for a private cache, which are torch's own for a run without the tool."""
    if inside:
        return private_cache(cache)
    variables = {**private_cache(cache), **private_cache_without_scope(cache)}
    del variables[CACHE_VARIABLE]
    return variables


class _EndReason(Enum):
    ENDED = ""
    INTERRUPTED = "the examination was interrupted"
    STALLED = "it made no progress"
    OVER_TIME = "it reached the time limit"
    CALLS_DONE = "all calls that were to be checked had been made"
    FOUND = "it had found what is wrong"


@contextlib.contextmanager
def _input(stdin: Path | None) -> Iterator[Any]:
    """Open the standard input for a run, the same for every run."""
    if stdin is None:
        yield subprocess.DEVNULL
        return
    with stdin.open("rb") as file:
        yield file


def keep_stdin(folder: Path) -> Path | None:
    """Store the tool's piped standard input for every run to read; None if there is none.

    A resumed examination uses the input that was piped to it originally.
    """
    path = folder / "stdin"
    # `sys.stdin` may be missing or closed.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        descriptor = sys.stdin.fileno()
        # A silent pipe: the program may not read it, either.
        if _is_pipe_or_file(descriptor) and _has_input(descriptor, _TIME_FOR_INPUT):
            data = sys.stdin.buffer.read()
            if data:
                path.write_bytes(data)
    return path if path.exists() else None


def is_answerable() -> bool:
    """Check whether the tool's standard input is a terminal, or a pipe without data so far."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        descriptor = sys.stdin.fileno()
        # A pipe at EOF is readable, and nothing more will come.
        is_silent = _is_pipe_or_file(descriptor) and not _has_input(descriptor, 0)
        return sys.stdin.isatty() or is_silent
    return False


def _has_input(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def _is_pipe_or_file(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _watch(
    child: subprocess.Popen[bytes],
    followed: FollowedRun,
    memory: MemoryWatch,
    limits: RunLimits,
    *,
    is_checked: bool,
) -> _EndReason:
    """Wait for the program, pass on its messages, and end it if it stalls or takes too long."""
    from inductoscope.hangs.watch.stall import Stall, StallWatcher, patience_of_doctor

    watcher = StallWatcher(followed.folder, patience_of_doctor(limits.stall))
    started, investigated = time.monotonic(), 0.0
    while child.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_TICK)
        if followed.listener.is_over():
            return _EndReason.INTERRUPTED
        followed.look()
        memory.look()
        if followed.is_investigated:
            investigated = time.monotonic()
            followed.hold_others(child.pid)
            continue  # The investigation has its own limits.
        if not investigated and followed.finding.claims:
            investigated = time.monotonic()  # The investigation ended between two looks.
        if investigated and followed.held:
            return _EndReason.FOUND
        if investigated and time.monotonic() - investigated > _TIME_TO_END:
            return _EndReason.FOUND  # The finding is written; other processes may hang.
        if time.monotonic() - started > limits.seconds:
            return _EndReason.OVER_TIME
        if limits.stops_after_calls and followed.is_complete:
            return _EndReason.CALLS_DONE
        if not investigated and time.monotonic() - followed.said > _SILENCE:
            followed.say(f"{followed}; {_RUNNING}" if is_checked else _RUNNING)
        stalls = [event for event in watcher.look() if isinstance(event, Stall)]
        if stalls:
            _ask_for_stacks(stalls)
            followed.diagnosis = stalls[0].judgement
            return _EndReason.STALLED
    return _EndReason.ENDED


def _ask_for_stacks(stalls: Sequence[Stall]) -> None:
    """Have the stalled processes write their stacks several times.

    The pauses differ, so that a loop is not sampled at the same point of each iteration.
    """
    for look in range(_LOOKS):
        for stall in stalls:
            ask_for_stacks(stall.pid)
        time.sleep(_TIME_TO_WRITE * (1 + look / 7))


_AGREE = ("right", "within-rounding")
_DISAGREE = ("wrong", "error")


class FollowedRun:
    """The growing recording of a running program, whose messages and findings are passed on."""

    def __init__(self, folder: Path, listener: Listener) -> None:
        self.folder, self.listener = folder, listener
        self._readers: dict[Path, StreamReader] = {}
        self._processes: dict[str, _Process] = {}
        self._verdicts: Counter[str] = Counter()
        self._investigator = 0
        # Processes that were stopped in their places, because another one investigates.
        self.held: Started = {}
        self._claims: list[tuple[float, Claim]] = []
        self.finding = FailureFinding()
        self.diagnosis: StallDiagnosis | None = None
        # The time of the last message.
        self.said = time.monotonic()

    def look(self, *, is_last: bool = False) -> None:
        """Read the events written since the last look; the last one includes incomplete lines."""
        known = len(self._claims)
        for path in stream_paths(self.folder):
            reader = self._readers.setdefault(path, StreamReader(path))
            process = self._processes.setdefault(reader.name, _Process())
            for entry in reader.read() if is_last else reader.read_new():
                process.take(entry.event)
                self._take(entry, reader.pid)
        if len(self._claims) > known:
            # Several processes may make claims, of which the latest counts.
            self._claims.sort(key=lambda timed: timed[0])
            self.finding = FailureFinding(tuple(claim for _, claim in self._claims))
            self.listener.finding_grew(self.finding)

    def _take(self, entry: Entry[Event], pid: int) -> None:
        match entry.event:
            case Check():
                self._verdicts[entry.event.verdict] += 1
            case Said():
                self.say(entry.event.text)
            case ClaimMade():
                claim = claim_of(vars(entry.event))
                if claim is not None:
                    # The first claim comes from the program itself; copies of it may make others.
                    self._investigator = self._investigator or pid
                    self._claims.append((entry.time, claim))

    def say(self, text: str) -> None:
        self.listener.say(text)
        self.said = time.monotonic()

    @property
    def is_investigated(self) -> bool:
        """Whether a process of the program is investigating, for which others may wait."""
        return bool(self._investigator) and is_alive(self._investigator)

    def hold_others(self, program: int) -> None:
        """Hold the ranks that may wait for the one that investigates.

        A collective that times out, or a rank that ends, would make the launcher end the others.
        What has started the investigating process, or was started by it, goes on, and so does a
        compile, which may have locked a cache.
        """
        investigator = self._investigator
        ranks = {r.pid for r in self._readers.values() if self._processes[r.name].is_a_rank}
        own = {investigator, *processes_below(investigator)}
        below = processes_below(program)
        for pid in (ranks - self.held.keys() - own) & below.keys():
            if is_alive(pid) and investigator not in processes_below(pid):
                hold(pid)
                self.held[pid] = below[pid]

    @property
    def is_complete(self) -> bool:
        """Whether the first calls of every graph that is in use have been checked."""
        running = [each for each in self._processes.values() if not each.has_ended]
        return any(each.has_gone_on for each in running) and all(
            each.is_complete for each in running
        )

    def __str__(self) -> str:
        checked = self._verdicts.total()
        if not checked:
            return "no call of a compiled graph has been checked yet"
        graphs = sum(len(process.graphs) for process in self._processes.values())
        said = f"{count_of(checked, 'call')} of {count_of(graphs, 'compiled graph')} checked"
        agree, disagree = (sum(self._verdicts[name] for name in s) for s in (_AGREE, _DISAGREE))
        if agree == checked:
            return f"{said}, all agree"
        counts = {
            "agreed": agree,
            "differed": disagree,
            "could not be compared": checked - agree - disagree,
        }
        return f"{said}: {', '.join(f'{n} {what}' for what, n in counts.items() if n)}"


@dataclass
class _Calls:
    """The numbers of the events of a graph's first and last check."""

    first: int
    last: int
    # Whether the graph has been called more often than calls are checked.
    has_gone_on: bool = False


@dataclass
class _Process:
    """Graphs that one process of the program has compiled and called."""

    graphs: dict[str, _Calls] = field(default_factory=dict)
    has_ended: bool = False
    has_compiled: bool = False
    _compiling: set[str] = field(default_factory=set)
    # Graphs that are compiled but not called yet, and those being compiled.
    _new: set[str] = field(default_factory=set)
    _events: int = 0

    def take(self, event: Event) -> None:
        self._events += 1
        match event:
            case CompileStart():
                self.has_compiled = True
                self._compiling.add(event.compile)
            case GraphState(stage=stages.DYNAMO):
                self._new.add(event.compile)
            case CompileEnd():
                self._compiling.discard(event.compile)
                if event.outcome != "compiled":
                    self._new.discard(event.compile)
            case Check():
                self._new.discard(event.compile)
                calls = self.graphs.setdefault(event.compile, _Calls(self._events, self._events))
                calls.last = self._events
            case CallsUnchecked() if event.compile in self.graphs:
                self.graphs[event.compile].has_gone_on = True
            case ProcessEnd():
                self.has_ended = True

    @property
    def is_a_rank(self) -> bool:
        """Whether the process runs compiled code, and does not compile just now."""
        return self.has_compiled and not self._compiling

    @property
    def has_gone_on(self) -> bool:
        """Whether any graph has been called more often than calls are checked."""
        return any(calls.has_gone_on for calls in self.graphs.values())

    @property
    def is_complete(self) -> bool:
        """Whether all checks are done: no graph is new, and each has gone on or is out of use.

        A graph is out of use if, since its last call, another went through all its checked calls:
        the program called it once, or Dynamo has recompiled the function for other sizes.
        """
        if self._compiling or self._new:
            return False
        latest = max((each.first for each in self.graphs.values() if each.has_gone_on), default=0)
        return all(each.has_gone_on or each.last < latest for each in self.graphs.values())


# --- the runs of an examination -------------------------------------------------------------------

# torch's error for a second backward pass of a graph that was compiled for only one.
_DIFFERENTIATED_AGAIN = "compiled with non-empty donated buffers"

# Seconds of a run from which on it is said how long another may take.
_LONG = 20.0

_CHECKED = "running the program with every compiled graph checked against eager"
_IN_EAGER = "the program failed although every graph is right; running it without torch.compile"
_WITHOUT_TOOL = "running the program once without the tool"

# The bytes of disk space that a C++ compiler needs for a small kernel.
_LEAST_SPACE = 1 << 20


class Runs:
    """Makes and counts runs of the program."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        limits: RunLimits,
        listener: Listener,
        run: Callable[..., ProgramRun] = run_watched,
    ) -> None:
        self.command, self._limits = command, limits
        self._listener = replace(listener, finding_grew=self._timing(listener.finding_grew))
        self._run_watched = run
        self.cache = folder / CACHE
        # The cache that the user's own runs have; never written to.
        self.users_cache = users_folder(os.environ)
        # Files of the examination, in the recording of the first run.
        self.folder = folder / FOLDER
        is_resumed = self.folder.exists()
        self.folder.mkdir(exist_ok=True)
        # The standard input piped to the tool, for every run to read.
        self.stdin = keep_stdin(self.folder)
        # Whether a user could have answered the program, if it had the tool's own standard input.
        self.withholds_input = self.stdin is None and is_answerable()
        self.count = 0
        # The recording of the latest run that investigates.
        self.looking_in = self._new_folder() if is_resumed else folder
        # The recording of the run on which the verdict is based.
        self._based_on = self.looking_in
        self._first_began = time.monotonic()
        self._first_took: float | None = None
        # Seconds until the first run came to a failure.
        self._found_after: float | None = None
        self._first_was_well = False
        # Whether the program compiles packages with AOTInductor.
        self.uses_packages = False
        # Whether the program differentiates a graph more than once.
        self._keeps_graphs = False
        # Runs that several hypotheses share: without torch.compile, without the tool, and with
        # another backend.
        self._eager: ProgramRun | None = None
        self.plain: ProgramRun | None = None
        self._plain_again: ProgramRun | None = None
        self._levels: dict[str, ProgramRun] = {}

    @property
    def output(self) -> str:
        """The file with the output of the examined run; empty if there is none."""
        path = output_of(self._based_on)
        return str(path) if path.exists() else ""

    @functools.cached_property
    def users_caches(self) -> dict[str, Path]:
        """The user's caches that have files, by name, with the folder of each."""
        return caches_with_files(os.environ)

    @property
    def usual_seconds(self) -> float:
        """The time limit of a run that should not take longer than the first one."""
        took = self._first_took
        return 60 + 5 * (time.monotonic() - self._first_began if took is None else took)

    def first(self, instructions: Instructions, message: str = _CHECKED) -> ProgramRun:
        """Make the first run, on which everything else is based."""
        self._listener.say(message)
        self._first_began = time.monotonic()
        run = self._run_base(instructions, self.looking_in)
        _refuse_incomplete(run)
        if run.failed and _DIFFERENTIATED_AGAIN in run.output:
            self._keeps_graphs = True
            self._listener.say("running it again with graphs kept for another backward pass")
            run = self._run_base(instructions, self._new_folder())
        self._first_took = run.ending.seconds
        self._first_was_well = run.ending.exit_code == 0 or run.calls_done
        self.uses_packages = any(each.flow for each in run.recording.compiles)
        return run

    def _run_base(self, instructions: Instructions, folder: Path) -> ProgramRun:
        self.looking_in = self._based_on = folder
        self._listener.say(f"it prints to {output_of(folder)}")
        return self._run(instructions, folder)

    def again(
        self, instructions: Instructions, message: str, seconds: float | None = None
    ) -> ProgramRun:
        """Run the program once more, for at most `seconds` if given."""
        took = self._found_after or self._first_took or 0.0
        is_long = took >= _LONG
        self._listener.say(f"{message} (the first time took {took:.0f} s)" if is_long else message)
        folder = self._new_folder()
        if instructions.investigate:
            self.looking_in = folder
        return self._run(instructions, folder, seconds)

    def in_eager(self, message: str, seconds: float | None = None) -> ProgramRun:
        """Run the program without torch.compile and without the tool.

        Packages are compiled and loaded all the same; only the tool can replace their calls.
        """
        packages = Instructions(calls=0, backend="eager", investigate=False)
        plain = Instructions(backend="off", inside=False)
        return self.again(packages if self.uses_packages else plain, message, seconds)

    def in_eager_once(self, message: str = _IN_EAGER, seconds: float | None = None) -> ProgramRun:
        """Return the run without torch.compile, made at the first request and cached."""
        if self._eager is None:
            self._eager = self.in_eager(message, seconds)
        return self._eager

    def without_tool_once(self, message: str = _WITHOUT_TOOL) -> ProgramRun:
        """Return the run without the tool, made at the first request and cached."""
        if self.plain is None:
            self.plain = self.again(Instructions(inside=False), message)
        return self.plain

    def with_backend_once(self, backend: str, message: str) -> ProgramRun:
        """Return the run with this backend, made at the first request and cached."""
        if backend not in self._levels:
            instructions = Instructions(calls=0, backend=backend, investigate=False)
            self._levels[backend] = self.again(instructions, message)
        return self._levels[backend]

    def without_tool_under(self, variables: Mapping[str, str], message: str) -> ProgramRun:
        """Run the program without the tool, with further variables of torch's own."""
        return self.again(Instructions(inside=False, variables=variables), message)

    def without_tool_finding(
        self, content: CacheContent, message: str, *, without: str = ""
    ) -> ProgramRun:
        """Run the program without the tool, with this in torch's caches, but for one of them."""
        instructions = Instructions(inside=False, cache=content, cache_without=without)
        return self.again(instructions, message)

    def given_back(
        self, conditions: Sequence[RunCondition], message: str, calls: int = 0
    ) -> ProgramRun:
        """Run the program under the tool, with these conditions as in the user's run."""
        names = tuple(condition.name for condition in conditions)
        return self.again(Instructions(calls=calls, investigate=False, given_back=names), message)

    def with_other_random_numbers(self, number: int = 1) -> ProgramRun:
        """Run the program with each graph in eager and random numbers of other seeds."""
        instructions = Instructions(calls=0, backend="eager", investigate=False, reseeded=number)
        return self.again(instructions, "running it in eager with other random numbers")

    def without_tool_again(self) -> ProgramRun:
        """Return a second run without the tool, made at the first request and cached."""
        if self._plain_again is None:
            message = "running it without the tool once more"
            self._plain_again = self.without_tool_under({}, message)
        return self._plain_again

    def memory_check_in_eager(self) -> MemoryCheck:
        """Run the program in eager under compute-sanitizer."""
        self.count += 1
        environment = {**os.environ, **Instructions(backend="off", inside=False).environment()}
        return check_memory(self.command, Path.cwd(), environment)

    def _timing(self, then: Callable[[FailureFinding], None]) -> Callable[[FailureFinding], None]:
        """Return a function that notes when the first finding grew, and passes it on."""

        def grew(finding: FailureFinding) -> None:
            if self._found_after is None:
                self._found_after = time.monotonic() - self._first_began
            then(finding)

        return grew

    def _new_folder(self) -> Path:
        number = 1
        while (self.folder / f"run-{number}").exists():
            number += 1
        return create_recording(list(self.command), output=self.folder / f"run-{number}")

    def _run(
        self, instructions: Instructions, folder: Path, seconds: float | None = None
    ) -> ProgramRun:
        self.count += 1
        run = self._run_watched(
            self.command,
            folder,
            self._completed(instructions) if instructions.inside else instructions,
            cache=self.cache,
            stdin=self.stdin,
            limits=self._limits_for(instructions, seconds or self._limits.seconds),
            listener=self._listener,
        )
        if run.ending.exit_code != 0:
            _refuse_full_disk(self.cache, run.output)
        return run

    def _completed(self, instructions: Instructions) -> Instructions:
        """Complete instructions with the facts for every run under the tool."""
        return replace(
            instructions,
            checks_more=not self._limits.stops_after_calls,
            recordings=tuple(map(str, (self.folder.parent, *self.folder.glob("run-*")))),
            stall=self._limits.stall,
            keeps_graphs=self._keeps_graphs,
        )

    def refuse_lack_of_space(self, message: str) -> None:
        """Raise if the compiler ran out of space in the examination's own cache.

        The error does not always name the file, so the fuller disk of the two counts.
        """
        if os.strerror(errno.ENOSPC) not in message:
            return
        places = (self.cache, Path(tempfile.gettempdir()))
        free, elsewhere = (shutil.disk_usage(place).free for place in places)
        if free < elsewhere:
            raise _no_space_in(self.cache)

    def _limits_for(self, instructions: Instructions, seconds: float) -> RunLimits:
        """Return the limits of a run, tighter with a workaround or after a successful first run."""
        limits = replace(self._limits, seconds=min(self._limits.seconds, seconds))
        if instructions.workaround or self._first_was_well:
            return replace(limits, seconds=min(limits.seconds, self.usual_seconds))
        return limits


def _refuse_incomplete(run: ProgramRun) -> None:
    """Raise if the program could not be recorded, which proves nothing."""
    for process in run.recording.processes:
        if process.stopped:
            raise ToolFailure(
                f"The examination could not be written to {run.folder}: {process.stopped}. "
                "Choose another place with --output."
            )


def _refuse_full_disk(folder: Path, output: str) -> None:
    """Raise if the program failed for lack of disk space for compiled code."""
    full = os.strerror(errno.ENOSPC)
    said = any(full in line and str(folder) in line for line in output.splitlines())
    if said or (folder.exists() and shutil.disk_usage(folder).free < _LEAST_SPACE):
        raise _no_space_in(folder)


def _no_space_in(folder: Path) -> ToolFailure:
    return ToolFailure(
        f"The disk of {folder} is full, so nothing can be compiled there. "
        "Choose another place with --output."
    )


# --- Comparisons with eager inside a run of the program -------------------------------------------


def every_check_passed(run: ProgramRun) -> bool:
    """Check whether a run succeeded with every check passed; a long one may have been cut short."""
    if run.stalled or not (run.over_time or run.calls_done or run.ending.exit_code == 0):
        return False
    recording = run.recording
    broken = any(process.hook_errors for process in recording.processes)
    if broken or run.functions_that_differ:
        return False  # The workaround itself may have failed, or something else is wrong, too.
    said = {check.verdict for check in recording.checks}
    return bool(said & {"right", "within-rounding"}) and not said & {"wrong", "error"}


# --- Runs a program up to one of its graphs, and has that graph compiled at several sizes ---------


def measure_growth(
    command: Sequence[str],
    folder: Path,
    largest: str,
    times: int,
    say: Say,
) -> MeasuredGrowth:
    """Measure the growth of one compile's graph, repeated up to `times` times."""
    runs = Runs(command, folder, RunLimits(), Listener(say))
    failure = Failure(SLOW, f"compile {largest} is compiled at several sizes")
    instructions = Instructions(calls=0, stop_at=largest, failure=failure, grow=times)
    run = runs.again(instructions, f"running it up to compile {largest}")
    for event in written_events([run.folder], GrowthMeasured.kind):
        return decode(MeasuredGrowth, event["growth"])
    error = "the program did not come to the same compile again"
    return MeasuredGrowth(largest, "", error=error)
