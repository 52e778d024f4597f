"""What `inductoscope profile` runs several times over: --try, --advise, --autotune."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from inductoscope.cli.commands.run import STANDARD_ERROR, end_as

if TYPE_CHECKING:
    from inductoscope.model.entities import Ending
    from inductoscope.profiling.advice.flip import Flip
    from inductoscope.profiling.turns import TimedRun

# The program ran, and nothing in it could be measured.
NOTHING_MEASURED = 4


def advise_on(
    to_run: list[str], output: Path | None, time_limit: float, json_path: str | None, *, quiet: bool
) -> None:
    """Run the program once, then with each change that may help, and print what it saves."""
    import tempfile

    from inductoscope.model.fold import load
    from inductoscope.profiling.advice.costs import costs_of
    from inductoscope.profiling.advice.evidence import RecordedEvidence
    from inductoscope.profiling.advice.flips import flips_for
    from inductoscope.profiling.advice.graphs_alone import predicted_alone
    from inductoscope.profiling.advice.trials import Budget, TrialResults, try_flips
    from inductoscope.profiling.kernels.running import profile_of, run_profiled
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
    from inductoscope.capture.launch import ending_from
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
    from inductoscope.profiling.autotuning.advisor import TuningResult, examine_tuning
    from inductoscope.profiling.autotuning.searches import searches_of
    from inductoscope.profiling.kernels.running import profile_of, run_profiled
    from inductoscope.recording.location import create_recording
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.terminal import Printer, write_json
    from inductoscope.views.report.tuning import print_tuning, tuning_view

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

    from inductoscope.profiling.settings.names import known_settings, variants_of
    from inductoscope.profiling.settings.trials import try_settings
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
