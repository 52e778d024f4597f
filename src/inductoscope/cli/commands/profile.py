"""`inductoscope profile`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inductoscope.cli.commands.run import STANDARD_ERROR, end_as
from inductoscope.cli.parameters import json_option, program_argument, quiet_option

if TYPE_CHECKING:
    from inductoscope.views.report.progress import ProgressLine

# The program ran, and nothing in it could be measured.
_NOTHING_MEASURED = 4


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
@quiet_option
@program_argument
def command(
    json_path: str | None,
    output: Path | None,
    measure_machine: bool,
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

    The machine's limits are measured once and kept in ~/.cache/inductoscope/machine.

    Exit code: the program's; 4 if it ended well and no compiled call was made.
    """
    from inductoscope.capture.launch import resolve_command
    from inductoscope.profiling.kernels.running import profile_of, run_profiled
    from inductoscope.recording.location import create_recording
    from inductoscope.views.report.profile import print_profile, profile_view
    from inductoscope.views.report.progress import ProgressLine
    from inductoscope.views.report.terminal import Printer, write_json

    to_run = resolve_command(words)
    folder = create_recording(to_run, output=output, fresh=True).absolute()
    # With --json -, standard output is for the JSON alone.
    stdout = STANDARD_ERROR if json_path == "-" else None
    ending = run_profiled(to_run, folder, stdout=stdout)
    progress: ProgressLine
    with ProgressLine(quiet=quiet) as progress:
        profile = profile_of(folder, measure_anew=measure_machine, say=progress.say)
    view = profile_view(profile, str(folder), ending)
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        print_profile(Printer(sys.stderr), view)
    if profile.is_empty and ending.exit_code == 0:
        sys.exit(_NOTHING_MEASURED)
    end_as(ending.exit_code, ending.signal)
