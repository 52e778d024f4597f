"""`inductoscope attach`."""

from __future__ import annotations

import sys

import click


@click.command("attach")
@click.option("--seconds", default=5.0, show_default=True, type=click.FloatRange(0.5, 3600.0))
@click.option("--json", "target", metavar="PATH", help="Write the result there; - is stdout.")
@click.option("--native", is_flag=True, help="Native frames too; pauses the process for a moment.")
@click.option(
    "--kill-stuck", is_flag=True, help="End a stuck compiler or worker, never the process itself."
)
@click.argument("pid", type=int)
@click.pass_context
def command(
    context: click.Context,
    *,
    seconds: float,
    target: str | None,
    native: bool,
    kill_stuck: bool,
    pid: int,
) -> None:
    """Say what a running process is at, with no help from it.

    It is looked at for a few seconds: its stacks (with py-spy, if that is installed), the
    processes that it started, what each of them does, and the locks that they wait for. The
    process is not changed, and not slowed.

    \b
    Exit code: 0 it moves, 1 it is stuck, 2 no such process or not one of Python,
    3 nothing of it may be read.
    """
    from inductoscope.hangs.watch.attaching import attach, end_attached
    from inductoscope.views.report.terminal import Printer, write_json
    from inductoscope.views.report.watch import attached_view, print_attached

    try:
        attached = attach(pid, seconds=seconds, native=native, say=_say)
    except KeyboardInterrupt:
        click.echo("inductoscope: interrupted; the process was left as it is", err=True)
        context.exit(130)
    if kill_stuck and not attached.moves:
        attached = end_attached(attached)
    view = attached_view(attached)
    if target is not None:
        write_json(view, target)
    if target != "-":
        print_attached(Printer(sys.stdout), view)
    context.exit(0 if attached.moves else 1)


def _say(text: str) -> None:
    click.echo(f"inductoscope: {text}", err=True)
