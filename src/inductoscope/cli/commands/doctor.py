"""`inductoscope doctor`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import click


@click.command(
    "doctor",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--json", "json_path", metavar="PATH", help="Write the verdict as JSON ('-': stdout)."
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Where to keep everything (a new folder)."
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Go on with an examination that was interrupted, in its folder (SCRIPT may be left out).",
)
@click.option(
    "--calls", default=8, show_default=True, help="Calls of each compiled graph to check."
)
@click.option(
    "--stall",
    default=60.0,
    show_default=True,
    help="Seconds without a sign of life inside the compiler that count as a hang.",
)
@click.option(
    "--time-limit", default=3600.0, show_default=True, help="Seconds for one run of the program."
)
@click.option(
    "--proofs",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Times that the reproducer is run, each in a fresh process; all have to fail.",
)
@click.option("--no-workaround", is_flag=True, help="Look for the culprit only.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT|-m MODULE|COMMAND [ARGS]..."
)
def command(
    json_path: str | None,
    output: Path | None,
    resume: Path | None,
    calls: int,
    stall: float,
    time_limit: float,
    proofs: int,
    no_workaround: bool,
    quiet: bool,
    words: tuple[str, ...],
) -> None:
    """Find out what is wrong with a compiled program, prove it, and offer a way round.

    The program is run with every compiled graph checked against eager and float64. What is found
    is located in the compiler, cut down to a small script that is run before it is called a
    reproducer, and workarounds are tried. The program is stopped where something is found.

    Exit code: 0 nothing wrong, 1 something found, 2 bad usage, 3 the tool failed.

    \b
    inductoscope doctor train.py --epochs 1
    inductoscope doctor --json verdict.json -m package.train
    """
    from inductoscope.capture.launch import resolve_command
    from inductoscope.doctor.outside.examination import Doctor, Request
    from inductoscope.doctor.outside.program import Limits
    from inductoscope.errors import UsageError
    from inductoscope.recording.location import command_of, create_recording
    from inductoscope.views.report.doctor import print_verdict
    from inductoscope.views.report.progress import Progress
    from inductoscope.views.report.terminal import Printer, write_json

    # Ended from outside, it ends as with Ctrl-C: nothing is left running, what is known is said.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if resume and output:
        raise UsageError("--resume goes on in the folder that it names: leave out --output.")
    to_run = resolve_command(words) if words or not resume else command_of(resume)
    folder = (resume or create_recording(to_run, output=output, fresh=True)).absolute()
    limits = Limits(stall, time_limit)
    request = Request(
        to_run, folder, calls, limits, with_workaround=not no_workaround, proofs=proofs
    )
    with Progress(quiet=quiet) as progress:
        doctor = Doctor(request, progress.say)
        try:
            verdict = doctor.examine()
        except KeyboardInterrupt:
            verdict = doctor.interrupted()
    view = verdict.as_data()
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        print_verdict(Printer(sys.stdout), view)
    sys.exit(1 if verdict.is_problem else 0)
