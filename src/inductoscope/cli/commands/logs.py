"""`inductoscope logs`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from inductoscope.analysis.ranks.reading import ReducedLogs
    from inductoscope.hangs.logs.answers import Answer

from inductoscope.cli.parameters import (
    complete_files,
    executor_options,
    json_option,
    ranks_page_option,
    refuse_without_executor,
)

FOUND_NOTHING, FOUND_SOMETHING = 0, 1
_MOST_RANKS = 1_000_000


@click.command("logs")
@click.option("--follow", is_flag=True, help="Wait until the log stops growing, then read it.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    metavar="N",
    help="With --follow: stop after N seconds without a new line.  [default: on Ctrl-C]",
)
@click.option(
    "--cores",
    type=click.IntRange(min=1),
    metavar="N",
    help="Read with N processes.  [default: one per core]",
)
@click.option(
    "--filter",
    "filter_folder",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write a snippet and a torch patch that skip the stuck configurations.",
)
@click.option(
    "--world",
    type=click.IntRange(min=1, max=_MOST_RANKS),
    metavar="N",
    help="How many ranks there should be, to name those without a log.",
)
@ranks_page_option
@executor_options("Have only the workers of this Dask cluster read the logs")
@json_option("the result")
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    metavar="FILE|FOLDER|-...",
    shell_complete=complete_files,
)
@click.pass_context
def command(
    context: click.Context,
    *,
    follow: bool,
    seconds: float | None,
    cores: int | None,
    filter_folder: Path | None,
    world: int | None,
    page: Path | None,
    executor: str | None,
    any_worker: bool,
    json_path: str | None,
    paths: tuple[str, ...],
) -> None:
    """Find out from torch's logs where a program got stuck.

    Names the kernel and the configuration that hang. Reads TORCH_LOGS text and TORCH_TRACE files:
    one, several or a folder, of one rank or a thousand, rotated, compressed, or prefixed by a
    launcher; - means standard input. It does not need torch, so a log from another machine works.
    Ranks are compared: which is the odd one out and since which decision, which is slow.

    \b
    TORCH_LOGS=+inductor python train.py 2>&1 | tee log.txt
    inductoscope logs log.txt

    \b
    Exit code: 0 no problem found, or too little to tell; 1 a hang, an error,
    the recompile limit, or ranks that call different collectives; 2 not a
    torch log.
    """
    from inductoscope.analysis.ranks.reading import reduce_logs
    from inductoscope.errors import UsageError
    from inductoscope.hangs.logs.log_files import find_logs
    from inductoscope.hangs.logs.reading import wait_until_quiet
    from inductoscope.views.report.logs import logs_view, print_logs
    from inductoscope.views.report.terminal import Printer, write_json

    if seconds is not None and not follow:
        raise UsageError("--seconds only works with --follow. Add --follow.")
    refuse_without_executor(executor, any_worker=any_worker)
    if executor is not None and follow:
        raise UsageError("--follow reads logs of this machine. Remove --executor.")
    if executor is not None and cores is not None:
        raise UsageError("--cores reads logs with processes of this machine. Remove --executor.")
    if follow:
        wait_until_quiet(paths, seconds=seconds)
    if executor is not None:
        found = _read_on_cluster(paths, executor, world, any_worker=any_worker)
    else:
        found = reduce_logs(find_logs(paths), cores, world=world)
    if not found.answers and not any(file.torch_lines for file in found.files):
        raise UsageError(_no_torch_line(paths))
    if filter_folder is not None:
        _write_filter(found.answers, filter_folder)
    view = logs_view(found.files, found.answers, found.report)
    if page is not None:
        _write_page(view, page)
    if json_path is not None:
        write_json(view, json_path)
    if json_path != "-":
        print_logs(Printer(), view)
    context.exit(FOUND_SOMETHING if view["problem"] else FOUND_NOTHING)


def _read_on_cluster(
    paths: Sequence[str], executor: str, world: int | None, *, any_worker: bool
) -> ReducedLogs:
    """Read logs on the cluster: every worker reads the logs that it can see."""
    from inductoscope.analysis.ranks.reading import reduce_where_they_lie
    from inductoscope.processes.cluster import connect

    with closing(connect(executor, any_versions=any_worker)) as cluster:
        return reduce_where_they_lie(paths, cluster, world=world)


def _write_page(view: dict[str, Any], page: Path) -> None:
    from inductoscope.errors import UsageError
    from inductoscope.views.page.ranks_page import write_ranks_page

    if view["ranks"] is None:
        raise UsageError("--page needs the logs of several ranks, and these name fewer than two.")
    write_ranks_page(view["ranks"], page)
    click.echo(f"wrote {page}", err=True)


def _write_filter(answers: Sequence[Answer], folder: Path) -> None:
    from inductoscope.errors import UsageError
    from inductoscope.hangs.choices.analysis import analyses_of
    from inductoscope.hangs.choices.filters import write_filter

    analyses = (analysis for answer in answers for analysis in analyses_of(answer))
    found = next((analysis.filter for analysis in analyses if analysis.filter is not None), None)
    if found is None:
        raise UsageError(
            "--filter has nothing to write: no condition separates stuck choices from finished "
            "ones."
        )
    for path in write_filter(found, folder):
        click.echo(f"wrote {path}", err=True)


def _no_torch_line(paths: tuple[str, ...]) -> str:
    where = paths[0] if len(paths) == 1 else f"{len(paths)} files"
    return (
        f"Found no torch log line in {where}: another tool wrote it, the program ran without "
        'TORCH_LOGS, or it compiled nothing. Run the program with TORCH_LOGS="+inductor" and add '
        "2>&1, because torch logs to standard error."
    )
