"""`inductoscope doctor`."""

from __future__ import annotations

import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from inductoscope.cli.parameters import (
    check_cluster,
    executor_options,
    json_option,
    print_view,
    program_argument,
    quiet_option,
)

if TYPE_CHECKING:
    from inductoscope.doctor.verdict import Verdict
    from inductoscope.views.report.terminal import Printer


@click.command(
    "doctor",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@json_option("the verdict")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Keep everything in this new folder."
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Continue an interrupted examination in its folder; SCRIPT may be omitted.",
)
@click.option(
    "--calls",
    default=8,
    show_default=True,
    metavar="N",
    help="Check the first N calls of each compiled graph, and more if that takes little time.",
)
@click.option(
    "--stall",
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Report a hang after this many seconds without progress in the compiler.",
)
@click.option(
    "--time-limit",
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop one run of the program after this long.",
)
@click.option(
    "--proofs",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="Run the reproducer N times in fresh processes; every run must fail.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Stop at the culprit: no reproducer, no proof, no workaround.",
)
@click.option("--no-workaround", is_flag=True, help="Find the cause, but try no workaround.")
@click.option(
    "--sentinel",
    is_flag=True,
    help="For long training: let the program run, and test calls chosen at random for a bias.",
)
@click.option(
    "--overhead",
    default=5.0,
    show_default=True,
    type=click.FloatRange(min=0.0, min_open=True),
    metavar="PERCENT",
    help="With --sentinel: add at most this to the program's time.",
)
@click.option(
    "--stop",
    is_flag=True,
    help="End the program once the first N calls of each graph in use are checked; with "
    "--sentinel, at the first alarm.",
)
@click.option(
    "--kept",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Examine the call that the sentinel kept in this folder; SCRIPT is needed too.",
)
@executor_options("Have the workers of this Dask cluster try candidates")
@quiet_option
@program_argument
def command(
    json_path: str | None,
    output: Path | None,
    resume: Path | None,
    calls: int,
    stall: float,
    time_limit: float,
    proofs: int,
    quick: bool,
    no_workaround: bool,
    sentinel: bool,
    overhead: float,
    stop: bool,
    kept: Path | None,
    executor: str | None,
    any_worker: bool,
    quiet: bool,
    words: tuple[str, ...],
) -> None:
    """Find what is wrong with a compiled program, and prove it.

    Runs the program and checks every compiled graph against eager and float64. At the first
    failure it stops the program, finds the stage that causes it, reduces it to a small script
    that fails without inductoscope, and tries workarounds.

    \b
    inductoscope doctor train.py --epochs 1
    inductoscope doctor --json verdict.json -m package.train
    inductoscope doctor --sentinel train.py --epochs 90

    Exit code: 0 nothing wrong, 1 something found, 2 bad usage, 3 the tool failed, 4 nothing could
    be checked.
    """
    from inductoscope.doctor.alarm import read_alarm
    from inductoscope.doctor.examination import Doctor, Request
    from inductoscope.doctor.instructions import Instructions
    from inductoscope.doctor.runs import RunLimits
    from inductoscope.doctor.sentinel_options import SentinelOptions
    from inductoscope.doctor.verdict import read_verdict
    from inductoscope.errors import UsageError
    from inductoscope.launch.program import resolve_command
    from inductoscope.recording.location import command_of, create_recording
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.verdict_text import worded

    # SIGTERM acts like Ctrl-C: nothing is left running, and the verdict so far is printed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if resume and output:
        raise UsageError("--resume continues in the folder it names. Remove --output.")
    if sentinel and (resume or kept):
        raise UsageError("--sentinel watches a new run. Remove --resume and --kept.")
    check_cluster(executor, any_worker=any_worker)
    known = read_verdict(resume) if resume else None
    if known is not None and not known.partial:
        # The examination is complete: a rerun could only lose results.
        progress = ProgressLine(quiet=quiet)
        progress.say("this examination is finished; this is its verdict")
        _print_and_exit(known, json_path)
    to_run = resolve_command(words) if words or not resume else command_of(resume)
    if kept:
        read_alarm(kept)  # Raises if the folder holds no call.
    folder = (resume or create_recording(to_run, output=output, fresh=True)).absolute()
    instructions = Instructions(
        calls=calls,
        with_workaround=not (no_workaround or quick),
        quick=quick,
        executor=executor or "",
        any_worker=any_worker,
    )
    request = Request(
        to_run,
        folder,
        instructions,
        RunLimits(stall, time_limit, stops_after_calls=stop and not sentinel),
        proofs=proofs,
        kept=kept,
        store_verdict=lambda verdict: _stored(worded(verdict), folder, json_path),
    )
    progress = ProgressLine(quiet=quiet)
    doctor: Doctor | LongRun
    if sentinel:
        from inductoscope.doctor.sentinel_run import LongRun

        doctor = LongRun(request, SentinelOptions(overhead / 100, stop=stop), progress.say)
        doctor.run()
    else:
        doctor = Doctor(request, progress.say)
    with progress:
        try:
            verdict = doctor.examine()
        except KeyboardInterrupt:
            verdict = doctor.interrupted()
    _print_and_exit(_better_of(verdict, known, folder), json_path, can_resume=not sentinel)


def _stored(verdict: Verdict, folder: Path, json_path: str | None) -> Verdict:
    """Store the verdict and its bug report in the recording, and in the user's JSON file.

    That file grows with what is known; what goes to standard output is written at the end.
    """
    from inductoscope.doctor.verdict import keep_verdict
    from inductoscope.views.report.terminal import replace_json
    from inductoscope.views.verdict_text import issue_text

    if verdict.issue:
        with contextlib.suppress(OSError):
            Path(verdict.issue).write_text(issue_text(verdict), "utf-8")
    keep_verdict(verdict, folder)
    if json_path and json_path != "-":
        replace_json(verdict.as_data(), json_path)
    return verdict


def _better_of(verdict: Verdict, known: Verdict | None, folder: Path) -> Verdict:
    """Return the better verdict, so that a proof from before an interruption is not lost."""
    if known is None or not verdict.partial or verdict.is_problem or not known.is_problem:
        return verdict
    from inductoscope.doctor.verdict import keep_verdict

    keep_verdict(known, folder)
    return known


def _print_and_exit(
    verdict: Verdict, json_path: str | None, *, can_resume: bool = False
) -> NoReturn:
    """Print and write the verdict, and end with its exit code."""
    from inductoscope.doctor.verdict import exit_code
    from inductoscope.views.report.verdict import print_verdict

    def render(printer: Printer, view: object) -> None:
        print_verdict(printer, verdict, can_resume=can_resume)

    print_view(verdict.as_data(), json_path, render)
    sys.exit(exit_code(verdict.verdict))
