"""`inductoscope logs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

FOUND_NOTHING, FOUND_SOMETHING = 0, 1


@click.command("logs")
@click.option("--follow", is_flag=True, help="The log still grows: read it once it stops growing.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="N",
    help="With --follow: it has stopped when nothing came for so long.  [default: Ctrl-C]",
)
@click.option(
    "--cores",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes to read with.  [default: all]",
)
@click.option(
    "--filter",
    "filter_folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write code there that leaves out what is stuck: a snippet, and a patch for torch.",
)
@click.option("--json", "target", metavar="PATH", help="Write the result there; - is stdout.")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|FOLDER|-...")
@click.pass_context
def command(
    context: click.Context,
    *,
    follow: bool,
    seconds: float | None,
    cores: int | None,
    filter_folder: Path | None,
    target: str | None,
    paths: tuple[str, ...],
) -> None:
    """Say from logs of torch where a program got stuck: which kernel, which configuration.

    Reads what TORCH_LOGS printed and what TORCH_TRACE wrote: one file, several, or a folder, of
    one rank or of a thousand, rotated or compressed, with whatever a launcher or a job system put
    before each line. It needs no torch, so a log from another machine will do; - is standard input.

    \b
    TORCH_LOGS=+inductor python train.py 2>&1 | tee log.txt
    inductoscope logs log.txt

    \b
    Exit code: 0 nothing is stuck, 1 something is, 2 no line of torch's is in it.
    """
    from inductoscope.errors import UsageError
    from inductoscope.hangs.logs.applicability import judge
    from inductoscope.hangs.logs.reading import read_logs, wait_until_quiet
    from inductoscope.views.report.logs import logs_view
    from inductoscope.views.report.terminal import write_json

    if seconds is not None and not follow:
        raise UsageError("--seconds says when --follow ends; give --follow too.")
    if follow:
        wait_until_quiet(paths, seconds=seconds)
    reading = read_logs(paths, cores=cores)
    if not reading.torch_lines and not reading.programs:
        raise UsageError(_no_torch_line(paths))
    view = logs_view(reading, judge(reading))
    if filter_folder is not None:
        _write_filter(view, filter_folder)
    if target is not None:
        write_json(view, target)
    if target != "-":
        _print(view)
    context.exit(FOUND_SOMETHING if view["problem"] else FOUND_NOTHING)


def _write_filter(view: dict[str, Any], folder: Path) -> None:
    from inductoscope.errors import UsageError
    from inductoscope.hangs.choices.workaround import WayPast, write_way_past

    groups = [group for answer in view["answers"] for group in answer["groups"]]
    ways = [WayPast(**group["way_past"]) for group in groups if group["way_past"]]
    if not ways:
        raise UsageError("There is nothing to leave out: no condition tells what is stuck.")
    for path in write_way_past(ways[0], folder):
        click.echo(f"wrote {path}", err=True)


def _no_torch_line(paths: tuple[str, ...]) -> str:
    where = paths[0] if len(paths) == 1 else f"{len(paths)} files"
    return (
        f"There is no line of torch's in {where}: it is of another tool, or of a program that ran "
        'without TORCH_LOGS. Run it with TORCH_LOGS="+inductor" and 2>&1, since torch writes to '
        "standard error."
    )


def _print(view: dict[str, Any]) -> None:
    from inductoscope.views.report.logs import print_logs
    from inductoscope.views.report.terminal import Printer

    print_logs(Printer(), view)
