"""`inductoscope attach`."""

from __future__ import annotations

import click

from inductoscope.cli.parameters import json_option, print_view


@click.command("attach")
@click.option(
    "--seconds",
    default=5.0,
    show_default=True,
    type=click.FloatRange(0.5, 3600.0),
    metavar="N",
    help="Watch the process for N seconds.",
)
@json_option("the result")
@click.option(
    "--native", is_flag=True, help="Show native frames too; this pauses the process briefly."
)
@click.option(
    "--kill-stuck", is_flag=True, help="Kill a stuck compiler or worker, never PID itself."
)
@click.argument("pid", type=int)
@click.pass_context
def command(
    context: click.Context,
    *,
    seconds: float,
    json_path: str | None,
    native: bool,
    kill_stuck: bool,
    pid: int,
) -> None:
    """Show what a running or hung process is doing.

    Watches any Python process for a few seconds: its stacks (with py-spy, if installed), the
    processes it started, and the locks they wait for. The process is not changed. py-spy pauses it
    briefly only if it cannot be read otherwise.

    \b
    inductoscope attach 12345
    inductoscope attach 12345 --seconds 30 --native

    \b
    Exit code: 0 it makes progress, 1 it is stuck, 2 not a running Python process,
    3 no permission to read it.
    """
    from dataclasses import replace

    from inductoscope.hangs.watch.attaching import attach, end_stuck
    from inductoscope.views.report.watch import print_attached

    try:
        attached = attach(pid, seconds=seconds, native=native, say=_say)
    except KeyboardInterrupt:
        click.echo("inductoscope: interrupted; the process was not changed", err=True)
        context.exit(130)
    if kill_stuck and not attached.moves:
        attached = replace(attached, ended=end_stuck(attached.stall.judgement))
    print_view(attached.as_data(), json_path, print_attached)
    context.exit(0 if attached.moves else 1)


def _say(text: str) -> None:
    click.echo(f"inductoscope: {text}", err=True)
