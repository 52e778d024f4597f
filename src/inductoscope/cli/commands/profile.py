"""What `inductoscope profile` runs several times over: --try, --advise, --autotune."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from inductoscope.cli.commands.run import STANDARD_ERROR, end_as
from inductoscope.cli.parameters import json_option, program_argument, quiet_option
from inductoscope.errors import UsageError

if TYPE_CHECKING:
    from inductoscope.model.entities import Ending
    from inductoscope.profiling.flips import Flip
    from inductoscope.profiling.turns import TimedRun
    from inductoscope.views.report.progress import ProgressLine


# The program ran, and nothing in it could be measured.
NOTHING_MEASURED = 4


def advise_on(
    to_run: list[str], output: Path | None, time_limit: float, json_path: str | None, *, quiet: bool
) -> None:
    """Run the program once, then with each change that may help, and print what it saves."""
    import tempfile

    from inductoscope.model.fold import load
    from inductoscope.profiling.evidence import RecordedEvidence, costs_of
    from inductoscope.profiling.flip_trials import Budget, TrialResults, try_flips
    from inductoscope.profiling.flips import flips_for, predicted_alone
    from inductoscope.profiling.kernel_profile import profile_of, run_profiled
    from inductoscope.recording.location import create_recording
    from inductoscope.recording.profile_file import ADVICE, profile_path
    from inductoscope.views.report.advice import advice_view, print_advice
    from inductoscope.views.report.profile import headline
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.terminal import Printer, write_json

    folder = create_recording(to_run, output=output, fresh=True).absolute()
    stdout = STANDARD_ERROR if json_path == "-" else None
    ending = run_profiled(to_run, folder, stdout=stdout)
    recording = load(folder)
    with (
        tempfile.TemporaryDirectory(prefix="inductoscope-advice-") as trials,
        ProgressLine(quiet=quiet) as progress,
    ):
        profile = profile_of(folder, measure_anew=False, with_eager=False, say=progress.say).profile
        flips, budget = flips_for(recording, profile), Budget(seconds=time_limit)

        def predict(flips: Sequence[Flip], inputs: Path) -> Sequence[Flip]:
            progress.say("compiling its graphs alone, with and without what may help")
            return predicted_alone(recording, flips, inputs)

        if ending.exit_code != 0:
            results = TrialResults((), None, _fails(ending))
        elif profile.is_empty:
            results = TrialResults((), None, headline(profile))
        else:
            results = try_flips(to_run, flips, Path(trials), budget, progress.say, predict=predict)
    costs = costs_of(RecordedEvidence(recording, profile))
    view = advice_view(results, to_run, str(folder), costs)
    if json_path != "-":
        print_advice(Printer(sys.stderr), view)
    for path in filter(None, (json_path, str(profile_path(folder, ADVICE)))):
        write_json(view, path)
    if ending.exit_code != 0:
        end_as(ending.exit_code, ending.signal)
    if results.base is None and not results.trials:
        sys.exit(NOTHING_MEASURED)


def _fails(ending: Ending) -> str:
    how = f"signal {ending.signal}" if ending.signal else f"exit code {ending.exit_code}"
    return f"The program ended with {how}, so nothing was tried."


def _end_if_failed(run: TimedRun | None) -> None:
    """End as a run of the program did that failed; what it said last was not shown yet."""
    from inductoscope.launch.program import ending_from
    from inductoscope.views.report.terminal import Printer

    if run is None or run.exit_code is None:
        return
    ending, printer = ending_from(run.exit_code, run.seconds), Printer(sys.stderr)
    printer.code(run.output, indent=0)
    printer.line(_fails(ending))
    end_as(ending.exit_code, ending.signal)


def examine_autotuning(
    to_run: list[str],
    output: Path | None,
    limits: tuple[int, float],
    json_path: str | None,
    *,
    quiet: bool,
) -> None:
    """Run the program once profiled, then with and without autotuning, and print what it gains."""
    import tempfile

    from inductoscope.model.fold import load
    from inductoscope.profiling.autotuning import TuningResult, examine_tuning, searches_of
    from inductoscope.profiling.kernel_profile import profile_of, run_profiled
    from inductoscope.recording.location import create_recording
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.setting_trials import print_tuning, tuning_view
    from inductoscope.views.report.terminal import Printer, write_json

    folder = create_recording(to_run, output=output, fresh=True).absolute()
    stdout = STANDARD_ERROR if json_path == "-" else None
    ending = run_profiled(to_run, folder, stdout=stdout)
    turns, seconds = limits
    with (
        tempfile.TemporaryDirectory(prefix="inductoscope-tuning-") as runs,
        ProgressLine(quiet=quiet) as progress,
    ):
        profile = profile_of(folder, measure_anew=False, with_eager=False, say=progress.say).profile
        searches = searches_of(load(folder), profile)
        result = TuningResult(searches)
        if ending.exit_code == 0:
            result = examine_tuning(
                to_run, searches, Path(runs), turns=turns, seconds=seconds, say=progress.say
            )
    view = tuning_view(result, to_run, str(folder), turns)
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        print_tuning(Printer(sys.stderr), view)
    if ending.exit_code != 0:
        Printer(sys.stderr).line(_fails(ending))
        end_as(ending.exit_code, ending.signal)
    _end_if_failed(result.trials.failed if result.trials else None)
    if profile.is_empty:
        sys.exit(NOTHING_MEASURED)


def compare_settings(
    to_run: list[str],
    tries: tuple[str, ...],
    turns: int,
    time_limit: float,
    json_path: str | None,
    *,
    quiet: bool,
) -> None:
    """Run the program with each setting in turns, and print how they compare."""
    import tempfile

    from inductoscope.profiling.turns import known_settings, try_settings, variants_of
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.setting_trials import print_trials, trials_view
    from inductoscope.views.report.terminal import Printer, write_json

    variants = variants_of(tries, known_settings())
    with (
        tempfile.TemporaryDirectory(prefix="inductoscope-tries-") as folder,
        ProgressLine(quiet=quiet) as progress,
    ):
        trials = try_settings(
            to_run, variants, Path(folder), turns=turns, seconds=time_limit, say=progress.say
        )
    view = trials_view(trials, to_run, turns)
    if json_path:
        write_json(view, json_path)
    if json_path != "-" and trials.failed is None:
        print_trials(Printer(sys.stdout), view)
    _end_if_failed(trials.failed)
    sys.exit(0 if view["calls"] else NOTHING_MEASURED)


# --- `inductoscope profile` -----------------------------------------------------------------------

# What there is to profile, by the parameter that asks for it, and what else that heeds.
_MODES = {
    "tries": {"turns", "time_limit"},
    "advise": {"output", "time_limit"},
    "tuning": {"output", "time_limit", "turns"},
    "compile_time": {"output", "grow"},
    "memory": {"output", "turns", "time_limit", "no_eager"},
}
_KERNELS = {"output", "measure_machine", "no_eager"}
_ALWAYS = {"json_path", "quiet", "words"}


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
def command(
    context: click.Context,
    json_path: str | None,
    output: Path | None,
    measure_machine: bool,
    no_eager: bool,
    tries: tuple[str, ...],
    turns: int,
    time_limit: float,
    compile_time: bool,
    grow: int | None,
    advise: bool,
    memory: bool,
    tuning: bool,
    quiet: bool,
    words: tuple[str, ...],
) -> None:
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
    from inductoscope.launch.program import resolve_command
    from inductoscope.profiling.kernel_profile import profile_of, run_profiled
    from inductoscope.recording.location import create_recording
    from inductoscope.recording.profile_file import KERNELS, profile_path
    from inductoscope.views.report.profile import print_profile, profile_view
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.terminal import Printer, write_json

    _refuse_what_would_be_ignored(context)
    to_run = resolve_command(words)
    # Children and temporary folders go when the tool does; the program gets the signal itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if tries:
        compare_settings(to_run, tries, turns, time_limit, json_path, quiet=quiet)
        return
    if advise:
        advise_on(to_run, output, time_limit, json_path, quiet=quiet)
        return
    if memory:
        limits = (turns, time_limit)
        _profile_memory(to_run, output, limits, json_path, with_eager=not no_eager, quiet=quiet)
        return
    if tuning:
        examine_autotuning(to_run, output, (turns, time_limit), json_path, quiet=quiet)
        return
    if compile_time:
        _profile_compile(to_run, output, grow or 0, json_path, quiet=quiet)
        return
    folder = create_recording(to_run, output=output, fresh=True).absolute()
    # With --json -, standard output is for the JSON alone.
    stdout = STANDARD_ERROR if json_path == "-" else None
    ending = run_profiled(to_run, folder, stdout=stdout)
    progress: ProgressLine
    with ProgressLine(quiet=quiet) as progress:
        found = profile_of(
            folder, measure_anew=measure_machine, with_eager=not no_eager, say=progress.say
        )
    view = profile_view(found, str(folder), ending)
    if json_path != "-":
        print_profile(Printer(sys.stderr), view)
    # Last, because the disk may be full.
    for path in filter(None, (json_path, str(profile_path(folder, KERNELS)))):
        write_json(view, path)
    if found.profile.is_empty and ending.exit_code == 0:
        sys.exit(NOTHING_MEASURED)
    end_as(ending.exit_code, ending.signal)


def _refuse_what_would_be_ignored(context: click.Context) -> None:
    """Refuse two modes at once, and options that the mode does not heed."""
    options = {parameter.name: parameter for parameter in context.command.params}
    given = [
        name
        for name in options
        if name and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    modes = [name for name in given if name in _MODES]
    heeded = _MODES[modes[0]] | {modes[0]} if modes else _KERNELS
    for name in given:
        if name in heeded | _ALWAYS:
            continue
        option = options[name].opts[0]
        if modes:
            first = options[modes[0]].opts[0]
            raise UsageError(f"{first} does not heed {option}. Remove one of them.")
        needed = [options[mode].opts[0] for mode, heeds in _MODES.items() if name in heeds]
        listed = " and ".join(filter(None, (", ".join(needed[:-1]), needed[-1])))
        raise UsageError(f"{option} is for {listed}: give that, too.")


def _profile_compile(
    to_run: list[str], output: Path | None, grow: int, json_path: str | None, *, quiet: bool
) -> None:
    """Run the program cold and warm, and print where its compile time goes."""
    from dataclasses import replace

    from inductoscope.doctor.runs import measure_growth
    from inductoscope.profiling.compile_times import profile_compile
    from inductoscope.recording.location import create_recording
    from inductoscope.recording.profile_file import COMPILE, profile_path
    from inductoscope.views.report.compile_profile import (
        compile_profile_view,
        print_compile_profile,
    )
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.terminal import Printer, write_json

    folder = create_recording(to_run, output=output, fresh=True).absolute()
    stdout = STANDARD_ERROR if json_path == "-" else None
    with ProgressLine(quiet=quiet) as progress:
        profile = profile_compile(to_run, folder, stdout=stdout, say=progress.say)
        if grow and profile.warm is not None:
            growth = measure_growth(to_run, folder, profile.cold.costs, grow, progress.say)
            profile = replace(profile, growth=growth)
    view = compile_profile_view(profile)
    if json_path != "-":
        print_compile_profile(Printer(sys.stderr), profile)
    for path in filter(None, (json_path, str(profile_path(folder, COMPILE)))):
        write_json(view, path)
    ending = profile.cold.ending
    if profile.is_empty and ending.exit_code == 0:
        sys.exit(NOTHING_MEASURED)
    end_as(ending.exit_code, ending.signal)


def _profile_memory(
    to_run: list[str],
    output: Path | None,
    limits: tuple[int, float],
    json_path: str | None,
    *,
    with_eager: bool,
    quiet: bool,
) -> None:
    """Run the program with its memory traced, and print what is alive at the peak."""
    from inductoscope.profiling.memory_trials import TrialLimits, profile_memory
    from inductoscope.recording.location import create_recording
    from inductoscope.recording.profile_file import MEMORY, profile_path
    from inductoscope.views.report.memory_profile import memory_view, print_memory
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.terminal import Printer, write_json

    folder = create_recording(to_run, output=output, fresh=True).absolute()
    stdout = STANDARD_ERROR if json_path == "-" else None
    with ProgressLine(quiet=quiet) as progress:
        profile = profile_memory(
            to_run,
            folder,
            stdout=stdout,
            limits=TrialLimits(*limits),
            with_eager=with_eager,
            say=progress.say,
        )
    view = memory_view(profile)
    write_json(view, str(profile_path(folder, MEMORY)))
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        print_memory(Printer(sys.stderr), view)
    if profile.is_empty and profile.ending.exit_code == 0:
        sys.exit(NOTHING_MEASURED)
    end_as(profile.ending.exit_code, profile.ending.signal)
