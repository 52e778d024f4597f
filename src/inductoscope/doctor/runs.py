"""Runs of the program, each into its own recording, and comparisons between them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from inductoscope.doctor.compute_sanitizer import MemoryCheck, check_memory
from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.instructions import FOLDER, Instructions
from inductoscope.doctor.watched_run import (
    Listener,
    ProgramRun,
    RunLimits,
    is_answerable,
    keep_stdin,
    output_of,
    run_watched,
)
from inductoscope.errors import ToolFailure
from inductoscope.profiling.compile_growth import MeasuredGrowth
from inductoscope.recording.codec import decode
from inductoscope.recording.events import GrowthMeasured
from inductoscope.recording.layout import CACHE
from inductoscope.recording.location import create_recording
from inductoscope.recording.written import written_events
from inductoscope.torch_facts.messages import last_lines

Say = Callable[[str], None]

# torch's error for a second backward pass of a graph that was compiled for only one.
_DIFFERENTIATED_AGAIN = "compiled with non-empty donated buffers"

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
        self.command, self._limits, self._listener = command, limits, listener
        self._run_watched = run
        self.cache = folder / CACHE
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
        self._first_was_well = False
        # Whether the program compiles packages with AOTInductor.
        self.uses_packages = False
        # Whether the program differentiates a graph more than once.
        self._keeps_graphs = False
        # Runs that several hypotheses share: without torch.compile, and without the tool.
        self._eager: ProgramRun | None = None
        self.plain: ProgramRun | None = None

    @property
    def output(self) -> str:
        """The file with the output of the examined run; empty if there is none."""
        path = output_of(self._based_on)
        return str(path) if path.exists() else ""

    @property
    def _usual_seconds(self) -> float:
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
        self._listener.say(message)
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

    def memory_check_in_eager(self) -> MemoryCheck:
        """Run the program in eager under compute-sanitizer."""
        self.count += 1
        environment = {**os.environ, **Instructions(backend="off", inside=False).environment()}
        return check_memory(self.command, Path.cwd(), environment)

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
            return replace(limits, seconds=min(limits.seconds, self._usual_seconds))
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


# --- Comparison of failed runs of the program -----------------------------------------------------


def fails_alike(one: ProgramRun, other: ProgramRun) -> bool:
    """Check whether two runs failed with the same exit code and last line of output."""
    if one.ending.exit_code != other.ending.exit_code:
        return False
    return _last_words(one) == _last_words(other)


def _last_words(run: ProgramRun) -> str:
    """Return the last line of output, with numbers masked, which may differ."""
    return re.sub(r"[-+.\d]+(e[-+]?\d+)?", "#", "".join(last_lines(run.output, 1)))


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
