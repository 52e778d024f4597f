"""`inductoscope profile`."""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from inductoscope.cli.commands.run import STANDARD_ERROR, end_as
from inductoscope.cli.parameters import json_option, program_argument, quiet_option
from inductoscope.errors import UsageError

if TYPE_CHECKING:
    from inductoscope.model.entities import Ending
    from inductoscope.profiling.kernel_profile import Profile
    from inductoscope.profiling.turns import ProgramRuns, TimedRun
    from inductoscope.views.report.terminal import Printer

# The program ran, and nothing in it could be measured.
NOTHING_MEASURED = 4
# No further change is tried after so many seconds.
_LONGEST_ADVICE = 1800.0


@click.command(
    "profile",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@json_option("the profile", "; the program's own output then goes to standard error")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Keep the recording in this new folder."
)
@click.option(
    "--measure-machine",
    is_flag=True,
    help="Measure the machine's limits again, even if they are known.",
)
@click.option("--no-eager", is_flag=True, help="Do not measure the same in eager.")
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="SETTING",
    help="Compare the program with this setting of torch._inductor.config, as in max_autotune or "
    "cpp.simdlen=1, with the program as it is; may be repeated.",
)
@click.option(
    "--turns",
    default=5,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="With --try, --memory and --autotune: run each N times, in turns; fewer than 5 show no "
    "difference.",
)
@click.option(
    "--time-limit",
    default=600.0,
    show_default=True,
    type=click.FloatRange(min=1),
    metavar="SECONDS",
    help="With --try, --advise, --memory and --autotune: stop one run of the program after this "
    "long.",
)
@click.option(
    "--compile",
    "compile_time",
    is_flag=True,
    help="Profile compile time instead: by stage, pass, node, line and cache, cold and warm.",
)
@click.option(
    "--grow",
    # A line through fewer than three sizes always fits.
    type=click.IntRange(min=3),
    metavar="N",
    help="With --compile: repeat the largest graph up to N times, and say how each stage grows.",
)
@click.option(
    "--advise",
    is_flag=True,
    help="Say what would be faster: try what rules suggest in the program, and measure it.",
)
@click.option(
    "--memory",
    is_flag=True,
    help="Profile memory instead: the peak, what is alive at it, who made it, what needs less.",
)
@click.option(
    "--autotune",
    "tuning",
    is_flag=True,
    help="Say what autotuning chose, what that gains in the program, and when the search pays.",
)
@quiet_option
@program_argument
@click.pass_context
def command(context: click.Context, /, **options: Any) -> None:
    """Find where the time of a compiled program goes.

    Runs the program with every kernel timed: time, calls, bytes and operations per second, and how
    near that is to what this machine can do. Kernels that lose most time come first, with the
    operations and source lines that they compute. The program keeps its output, arguments and exit
    code.

    \b
    inductoscope profile bench.py
    inductoscope profile --json profile.json -m package.bench

    --try runs the program several times with each setting, in turns, with a private cache for
    each, and shows the differences that are beyond noise.

    \b
    inductoscope profile --try max_autotune --try cpp.simdlen=1 bench.py

    --compile runs it twice, with an empty cache and with a full one, and shows where compile time
    goes. --grow then compiles its largest graph several times over and says how each stage grows.

    \b
    inductoscope profile --compile --grow 8 bench.py

    --advise runs it once to see what may make it slow, then with each change that may help, every
    second call of a compiled function in eager, and shows what each change saves.

    \b
    inductoscope profile --advise bench.py

    --memory traces what is allocated and freed from one compiled call to the next, compiled and in
    eager, and shows what is alive at the peak. It then tries settings that may need less.

    \b
    inductoscope profile --memory train.py

    --autotune runs it once to see what each search chose, then with and without autotuning, in
    turns, and shows what the choice gains and after how many calls the search has paid.

    \b
    inductoscope profile --autotune bench.py

    The machine's limits are measured once and kept in ~/.cache/inductoscope/machine.

    Exit code: the program's; 4 if it ended well and no compiled call was made.
    """
    request = _Request(**options)
    profile = _refusing_what_would_be_ignored(context)
    # SIGTERM raises KeyboardInterrupt, which cleans up; the program gets the signal itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    profile(request)


@dataclass(frozen=True)
class _Request:
    words: tuple[str, ...]
    output: Path | None
    json_path: str | None
    measure_machine: bool
    no_eager: bool
    tries: tuple[str, ...]
    turns: int
    time_limit: float
    compile_time: bool
    grow: int | None
    advise: bool
    memory: bool
    tuning: bool
    quiet: bool

    @cached_property
    def command(self) -> list[str]:
        from inductoscope.launch.program import resolve_command

        return resolve_command(self.words)

    @cached_property
    def folder(self) -> Path:
        """The folder of the recording, created on first access."""
        from inductoscope.recording.location import create_recording

        return create_recording(self.command, output=self.output, fresh=True).absolute()

    @property
    def stdout(self) -> int | None:
        """The program's standard output: with --json -, the tool's is reserved for the JSON."""
        return STANDARD_ERROR if self.json_path == "-" else None

    @contextmanager
    def trials(self) -> Iterator[ProgramRuns]:
        """Yield runs of the program in a temporary folder, while progress is shown."""
        from inductoscope.profiling.turns import ProgramRuns
        from inductoscope.views.report.progress import ProgressLine

        with (
            tempfile.TemporaryDirectory(prefix="inductoscope-profile-") as folder,
            ProgressLine(quiet=self.quiet) as progress,
        ):
            yield ProgramRuns(self.command, Path(folder), progress.say, self.turns, self.time_limit)

    def run_profiled(self) -> Ending:
        """Run the program with its kernels timed; the terminal is the program's own meanwhile."""
        from inductoscope.profiling.kernel_profile import run_profiled

        return run_profiled(self.command, self.folder, "kernel-times", stdout=self.stdout)

    def profile(self, say: Callable[[str], None]) -> Profile:
        from inductoscope.profiling.kernel_profile import profile_of

        with_eager = not (self.no_eager or self.advise or self.tuning)
        anew = self.measure_machine
        return profile_of(self.folder, measure_anew=anew, with_eager=with_eager, say=say)

    def show(
        self,
        view: Mapping[str, Any],
        print_view: Callable[[Printer, Mapping[str, Any]], None] | None,
        kept_as: str = "",
    ) -> None:
        from inductoscope.recording.profile_file import profile_path
        from inductoscope.views.report.terminal import Printer, write_json

        if self.json_path != "-" and print_view is not None:
            # Trials of settings are the result, for standard output; otherwise the program owns it.
            print_view(Printer(sys.stderr if "recording" in view else sys.stdout), view)
        # The recording's copy comes last, because the disk may be full.
        if self.json_path:
            write_json(view, self.json_path)
        if kept_as:
            write_json(view, str(profile_path(self.folder, kept_as)))


def _end(ending: Ending, *, is_empty: bool) -> None:
    """Exit as the program did, or with its own code if there was nothing to measure."""
    if is_empty and ending.exit_code == 0:
        sys.exit(NOTHING_MEASURED)
    end_as(ending.exit_code, ending.signal)


def _profile_kernels(request: _Request) -> None:
    from inductoscope.recording.profile_file import KERNELS
    from inductoscope.views.report.profile import print_profile, profile_view

    ending = request.run_profiled()
    with request.trials() as runs:
        profile = request.profile(runs.say)
    request.show(profile_view(profile, str(request.folder), ending), print_profile, KERNELS)
    _end(ending, is_empty=profile.is_empty)


def _profile_compile(request: _Request) -> None:
    from inductoscope.doctor.runs import measure_growth
    from inductoscope.profiling.compile_times import profile_compile
    from inductoscope.recording.profile_file import COMPILE
    from inductoscope.views.report.compile_profile import (
        compile_profile_view,
        print_compile_profile,
    )

    command, folder = request.command, request.folder
    with request.trials() as runs:
        profile = profile_compile(command, folder, stdout=request.stdout, say=runs.say)
        if request.grow and profile.warm is not None:
            largest = max(profile.cold["compiles"], key=lambda each: each["nodes"])
            growth = measure_growth(command, folder, largest["compile"], request.grow, runs.say)
            profile = replace(profile, growth=growth)
    request.show(compile_profile_view(profile), print_compile_profile, COMPILE)
    _end(profile.ending, is_empty=profile.is_empty)


def _profile_memory(request: _Request) -> None:
    from inductoscope.profiling.memory_trials import profile_memory
    from inductoscope.recording.profile_file import MEMORY
    from inductoscope.views.report.memory_profile import memory_view, print_memory

    with request.trials() as runs:
        profile = profile_memory(
            runs, request.folder, stdout=request.stdout, with_eager=not request.no_eager
        )
    request.show(memory_view(profile), print_memory, MEMORY)
    _end(profile.ending, is_empty=profile.is_empty)


def _advise(request: _Request) -> None:
    from inductoscope.model.fold import load
    from inductoscope.profiling.evidence import RecordedEvidence, costs_of
    from inductoscope.profiling.flip_trials import TrialResults, try_flips
    from inductoscope.profiling.flips import flips_for
    from inductoscope.recording.profile_file import ADVICE
    from inductoscope.views.report.advice import advice_view, print_advice
    from inductoscope.views.report.profile import headline

    ending = request.run_profiled()
    with request.trials() as runs:
        profile, recording = request.profile(runs.say), load(request.folder)
        if ending.exit_code != 0:
            results = TrialResults((), None, _fails(ending))
        elif profile.is_empty:
            results = TrialResults((), None, headline(profile))
        else:
            limited = replace(runs, total=_LONGEST_ADVICE)
            results = try_flips(limited, flips_for(recording, profile))
    costs = costs_of(RecordedEvidence(recording, profile))
    view = advice_view(results, request.command, str(request.folder), costs)
    request.show(view, print_advice, ADVICE)
    _end(ending, is_empty=results.base is None and not results.trials)


def _examine_autotuning(request: _Request) -> None:
    from inductoscope.model.fold import load
    from inductoscope.profiling.autotuning import WITHOUT_TUNING, searches_of
    from inductoscope.profiling.turns import try_settings
    from inductoscope.views.report.setting_trials import print_tuning, tuning_view
    from inductoscope.views.report.terminal import Printer

    ending = request.run_profiled()
    with request.trials() as runs:
        profile = request.profile(runs.say)
        result = searches_of(load(request.folder), profile)
        if ending.exit_code == 0 and result.were_made:
            result = replace(result, trials=try_settings(runs, [WITHOUT_TUNING]))
    view = tuning_view(result, request.command, str(request.folder), request.turns)
    request.show(view, print_tuning)
    if ending.exit_code != 0:
        Printer(sys.stderr).line(_fails(ending))
    elif result.trials is not None:
        _end_if_failed(result.trials.failed)
    _end(ending, is_empty=profile.is_empty)


def _compare_settings(request: _Request) -> None:
    from inductoscope.profiling.turns import known_settings, try_settings, variants_of
    from inductoscope.views.report.setting_trials import print_trials, trials_view

    variants = variants_of(request.tries, known_settings())
    with request.trials() as runs:
        trials = try_settings(runs, variants)
    view = trials_view(trials, request.command, request.turns)
    request.show(view, print_trials if trials.failed is None else None)
    _end_if_failed(trials.failed)
    sys.exit(0 if view["calls"] else NOTHING_MEASURED)


def _fails(ending: Ending) -> str:
    how = f"signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"
    return f"The program ended with {how}, so nothing was tried."


def _end_if_failed(run: TimedRun | None) -> None:
    from inductoscope.launch.program import ending_from
    from inductoscope.views.report.terminal import Printer

    if run is None or run.exit_code is None:
        return
    ending, printer = ending_from(run.exit_code, run.seconds), Printer(sys.stderr)
    printer.code(run.output, indent=0)
    printer.line(_fails(ending))
    end_as(ending.exit_code, ending.signal)


# The modes by parameter, each with the other parameters that it uses.
_MODES: dict[str, tuple[Callable[[_Request], None], set[str]]] = {
    "tries": (_compare_settings, {"turns", "time_limit"}),
    "advise": (_advise, {"output", "time_limit"}),
    "tuning": (_examine_autotuning, {"output", "time_limit", "turns"}),
    "compile_time": (_profile_compile, {"output", "grow"}),
    "memory": (_profile_memory, {"output", "turns", "time_limit", "no_eager"}),
}
_KERNELS = _profile_kernels, {"output", "measure_machine", "no_eager"}
_ALWAYS = {"json_path", "quiet", "words"}


def _refusing_what_would_be_ignored(context: click.Context) -> Callable[[_Request], None]:
    """Return the selected mode; refuse two modes, and options that the mode ignores."""
    names = {p.name: p.opts[0] for p in context.command.params if p.name}
    typed = ParameterSource.COMMANDLINE
    given = [name for name in names if context.get_parameter_source(name) is typed]
    mode = next((name for name in given if name in _MODES), None)
    profile, heeded = _MODES[mode] if mode else _KERNELS
    for name in given:
        if name in heeded | _ALWAYS | {mode}:
            continue
        if mode:
            raise UsageError(f"{names[mode]} does not heed {names[name]}. Remove one of them.")
        *others, last = (names[each] for each, (_, heeds) in _MODES.items() if name in heeds)
        listed = f"{', '.join(others)} and {last}" if others else last
        raise UsageError(f"{names[name]} is for {listed}: give that, too.")
    return profile
