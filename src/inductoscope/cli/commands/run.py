"""`inductoscope run`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from inductoscope.errors import InductoscopeError

if TYPE_CHECKING:
    from inductoscope.capture.launch import Observer


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Where to keep the recording (a new folder)."
)
@click.option("--fresh", is_flag=True, help="Compile everything anew, in a private cache.")
@click.option("--json", "json_path", metavar="PATH", help="Also write the summary as JSON.")
@click.option("--quiet", is_flag=True, help="Print no summary.")
@click.option(
    "--findings-exit-code",
    is_flag=True,
    help="Exit with 1 if something was found and 0 if not, instead of the program's own code.",
)
@click.option(
    "--stall",
    type=click.FloatRange(min=0.0),
    metavar="SECONDS",
    help="Without a sign of life that count as a stall; 0 does not watch.  [default: by stage]",
)
@click.option(
    "--kill-stuck",
    is_flag=True,
    help="End a compiler or worker that is stuck, so that the run goes on without it.",
)
@click.argument(
    "words", nargs=-1, type=click.UNPROCESSED, metavar="SCRIPT|-m MODULE|COMMAND [ARGS]..."
)
def command(
    output: Path | None,
    fresh: bool,
    json_path: str | None,
    quiet: bool,
    findings_exit_code: bool,
    stall: float | None,
    kill_stuck: bool,
    words: tuple[str, ...],
) -> None:
    """Run a program under the scope and keep what every compiler stage did.

    The program runs unchanged: its output, arguments, signals and exit code stay as they are. A
    summary follows on standard error, and 'inductoscope show' reads the recording.

    \b
    inductoscope run train.py --epochs 1
    inductoscope run -m package.train
    inductoscope run torchrun --nproc-per-node 2 train.py
    """
    from inductoscope.capture.launch import resolve_command, run_recorded
    from inductoscope.recording.location import create_recording

    to_run = resolve_command(words)
    folder = create_recording(to_run, output=output, fresh=fresh)
    watch = _watch(folder, stall, kill_stuck) if stall != 0 else None
    ending = run_recorded(to_run, folder, fresh=fresh, observer=watch)
    problems = False
    if json_path or findings_exit_code or not quiet:
        problems = _try_to_report(folder, json_path, quiet=quiet)
    if findings_exit_code:
        sys.exit(1 if problems else 0)
    _end_as(ending.exit_code, ending.signal)


def _watch(folder: Path, stall: float | None, kill_stuck: bool) -> Observer:
    """Says on standard error when the program stands still, and at what."""
    from inductoscope.watch.live import Watch

    def say(event: Any) -> None:
        from inductoscope.report.terminal import Printer
        from inductoscope.report.watch import print_event

        print_event(Printer(sys.stderr), event, _stuck_choices(folder, event))
        sys.stderr.flush()

    return Watch(folder, say, limit=stall, kill_stuck=kill_stuck).over


def _stuck_choices(folder: Path, event: Any) -> list[str]:
    """What is known of choices that the program waits for, where it does."""
    from inductoscope.hang.stuck_choices import stuck_choices, told
    from inductoscope.watch.stall import Stall

    if not isinstance(event, Stall):
        return []

    choices = stuck_choices(folder)
    return [] if choices is None else told(choices)


def _try_to_report(folder: Path, json_path: str | None, *, quiet: bool) -> bool:
    """Report; if that cannot be done, say why and let the program's own ending get through."""
    try:
        return _report(folder, json_path, quiet=quiet)
    except InductoscopeError as error:
        click.echo(f"inductoscope: {error}", err=True)
        return False


def _report(folder: Path, json_path: str | None, *, quiet: bool) -> bool:
    """Print and write the summary; True if there is a problem in it."""
    from inductoscope.diagnose import diagnose
    from inductoscope.model.fold import load
    from inductoscope.report.summary import print_summary, summary_view
    from inductoscope.report.terminal import Printer, write_json

    recording = load(folder)
    findings = diagnose(recording)
    view = summary_view(recording, findings)
    if json_path:
        write_json(view, json_path)
    if not quiet:
        try:
            print_summary(Printer(sys.stderr), view)
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # Standard error may be closed; the program's own result must still get through.
    return any(finding.is_problem for finding in findings)


def _end_as(exit_code: int, number: int | None) -> NoReturn:
    """End the way the program ended, so that whoever started the tool sees no difference."""
    if number is not None:
        _die_of(number)
    sys.exit(exit_code)


def _die_of(number: int) -> None:
    import resource

    # The program has dumped its core already, if it was to.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset.
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
