"""`inductoscope run`."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from inductoscope.cli.parameters import json_option, program_argument, target_option
from inductoscope.errors import InductoscopeError
from inductoscope.recording.kernel_values import MOST_CALLS, MOST_GIB

if TYPE_CHECKING:
    from inductoscope.hangs.choices.analysis import Analysis
    from inductoscope.launch.program import Observer
    from inductoscope.torch_facts.gpu_targets import Target


STANDARD_ERROR = 2


@click.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--output", type=click.Path(path_type=Path), help="Keep the recording in this new folder."
)
@click.option("--fresh", is_flag=True, help="Recompile everything, in a private cache.")
@json_option("the summary", "; the program's own output then goes to standard error")
@click.option("--quiet", is_flag=True, help="Print no summary.")
@click.option(
    "--findings-exit-code",
    is_flag=True,
    help="Exit with 1 if there are findings and 0 if not, whatever the program returned.",
)
@click.option(
    "--stall",
    type=click.FloatRange(min=0.0),
    metavar="SECONDS",
    help="Report a stall after this many seconds without progress; 0 disables watching.  "
    "[default: depends on the stage]",
)
@click.option(
    "--kill-stuck",
    is_flag=True,
    help="Kill a stuck compiler or worker so that the program can continue.",
)
@click.option(
    "--values",
    metavar="KERNELS",
    help="Save the tensors that these kernels leave in their buffers: a name, or a pattern such as "
    f"'*'. At most {MOST_CALLS} calls of each kernel, and {MOST_GIB} GiB in all.",
)
@target_option("Then compile the graphs for this GPU, even without having one")
@click.option(
    "--pretend",
    is_flag=True,
    help="With --target: let a program that asks for a GPU see one; tensors have no values.",
)
@program_argument
def command(
    output: Path | None,
    fresh: bool,
    json_path: str | None,
    quiet: bool,
    findings_exit_code: bool,
    stall: float | None,
    kill_stuck: bool,
    values: str | None,
    target: str | None,
    pretend: bool,
    words: tuple[str, ...],
) -> None:
    """Run a program and record every stage of the compiler.

    The program runs unchanged, with its own output, arguments, signals and exit code. A summary
    with findings follows on standard error; 'inductoscope show' reads the recording. If the
    program stops making progress, inductoscope says where it is stuck.

    --target compiles the captured graphs for that GPU afterwards, in a child process. Nothing runs
    on a GPU. A program that asks for a GPU itself needs --pretend too.

    \b
    inductoscope run train.py --epochs 1
    inductoscope run --target cuda:90 train.py
    inductoscope run -m package.train
    inductoscope run torchrun --nproc-per-node 2 train.py
    """
    from inductoscope.launch.program import resolve_command, run_recorded
    from inductoscope.recording.location import create_recording

    wanted = _wanted_target(target, pretend)
    to_run = resolve_command(words)
    details = _pretend(str(wanted)) if pretend else {}
    if values is not None:
        _save_values(values, pretend=pretend)
    # Invented timings must not enter the user's cache; its wrappers cannot be rewritten.
    fresh = fresh or pretend or values is not None
    folder = create_recording(to_run, output=output, fresh=fresh, **details)
    watch = _watch(folder, stall, kill_stuck) if stall != 0 else None
    # With --json -, standard output is for the JSON alone.
    stdout = STANDARD_ERROR if json_path == "-" else None
    ending = run_recorded(to_run, folder, fresh=fresh, observer=watch, stdout=stdout)
    problems = False
    if json_path or findings_exit_code or not quiet:
        problems = _try_to_report(folder, json_path, quiet=quiet)
    if values is not None and not quiet:
        _print_values(folder, values)
    if wanted is not None and not pretend:
        _compile_for(wanted, folder, quiet=quiet, failed=ending.exit_code != 0)
    if findings_exit_code:
        sys.exit(1 if problems else 0)
    end_as(ending.exit_code, ending.signal)


# --- an absent GPU --------------------------------------------------------------------------------


def _wanted_target(target: str | None, pretend: bool) -> Target | None:
    from inductoscope.errors import UsageError
    from inductoscope.torch_facts.gpu_targets import read_target

    if target is None and pretend:
        raise UsageError(
            "--pretend needs a GPU to pretend. Add --target, for example --target cuda:90."
        )
    return None if target is None else read_target(target)


def _pretend(target: str) -> dict[str, Any]:
    """Set up the environment to pretend a GPU; return the manifest entries that say so."""
    from inductoscope.launch.environment import TARGET_VARIABLE, with_parts
    from inductoscope.torch_facts.gpu_targets import has_triton

    os.environ.update(with_parts("record", "pretend"), **{TARGET_VARIABLE: target})
    return {"target": target, "ran_on_gpu": False, "machine_code": has_triton(), "pretended": True}


def _compile_for(target: Target, folder: Path, *, quiet: bool, failed: bool) -> None:
    """Compile the captured graphs for the target into a second recording, after the run."""
    from inductoscope.targets.recompile import recording_for_target
    from inductoscope.views.report.progress import ProgressLine

    try:
        with ProgressLine(quiet=quiet) as progress:
            made = recording_for_target(folder, target, say=progress.say)
    except InductoscopeError as error:
        click.echo(f"inductoscope: {error}", err=True)
        if failed:
            click.echo(
                "inductoscope: the program failed. If it asks for a GPU (device='cuda'), run it "
                f"with --target {target} --pretend.",
                err=True,
            )
        return
    if not quiet:
        _try_to_report(made, None, quiet=False)


# --- values ---------------------------------------------------------------------------------------


def _save_values(kernels: str, *, pretend: bool) -> None:
    from inductoscope.errors import UsageError
    from inductoscope.launch.environment import with_parts
    from inductoscope.recording.kernel_values import VARIABLE

    if pretend:
        raise UsageError("--values has nothing to save: with --pretend, tensors have no values.")
    os.environ.update(with_parts("record", "values"), **{VARIABLE: kernels})


def _print_values(folder: Path, kernels: str) -> None:
    from inductoscope.recording.kernel_values import read_values
    from inductoscope.views.report.kernel import print_values
    from inductoscope.views.report.terminal import Printer

    print_values(Printer(sys.stderr), folder, kernels, list(read_values(folder)))


# --- during and after the run ---------------------------------------------------------------------


def _watch(folder: Path, stall: float | None, kill_stuck: bool) -> Observer:
    """Start a watch that reports stalls of the program on standard error."""
    from inductoscope.hangs.watch.live import Watch
    from inductoscope.hangs.watch.stall import patience_of_run

    def say(event: Any) -> None:
        from inductoscope.views.report.terminal import Printer
        from inductoscope.views.report.watch import print_event

        print_event(Printer(sys.stderr), event, _stuck_choices(folder, event))
        sys.stderr.flush()

    return Watch(folder, say, patience_of_run(stall), kill_stuck=kill_stuck).over


def _stuck_choices(folder: Path, event: Any) -> Analysis | None:
    """Analyse the autotuning choices that a stalled program waits for; None if it does not."""
    from inductoscope.hangs.choices.analysis import analyse
    from inductoscope.hangs.choices.stuck_choices import stuck_choices
    from inductoscope.hangs.watch.stall import Stall

    choices = stuck_choices(folder) if isinstance(event, Stall) else None
    return None if choices is None else analyse(choices)


def _try_to_report(folder: Path, json_path: str | None, *, quiet: bool) -> bool:
    """Print the summary; if that fails, say why and keep the program's own exit status."""
    try:
        return _report(folder, json_path, quiet=quiet)
    except InductoscopeError as error:
        click.echo(f"inductoscope: {error}", err=True)
        return False


def _report(folder: Path, json_path: str | None, *, quiet: bool) -> bool:
    """Print the summary and write its JSON; return whether it reports a problem."""
    from inductoscope.analysis.rules import diagnose
    from inductoscope.model.fold import load
    from inductoscope.views.report.summary import print_summary, summary_view
    from inductoscope.views.report.target import with_target
    from inductoscope.views.report.terminal import Printer, write_json

    recording = load(folder)
    findings = diagnose(recording)
    view, render = with_target(recording, summary_view(recording, findings), print_summary)
    if json_path:
        write_json(view, json_path)
    if not quiet:
        try:
            render(Printer(sys.stderr), view)
            sys.stderr.flush()
        except (OSError, ValueError):
            pass  # Standard error may be closed; the program's own result must still get through.
    return any(finding.is_problem for finding in findings)


def end_as(exit_code: int, number: int | None) -> NoReturn:
    """Exit with the program's exit code or signal, so that the caller sees no difference."""
    if number is not None:
        _die_of(number)
    sys.exit(exit_code)


def _die_of(number: int) -> None:
    from inductoscope.processes.limits import limit_resources

    limit_resources()  # The program has already dumped its own core.
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no handler to reset.
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
