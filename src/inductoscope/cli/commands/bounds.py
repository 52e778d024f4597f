"""`inductoscope bounds`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inductoscope.cli.parameters import (
    json_option,
    pager_option,
    print_view,
    quiet_option,
    read_recording,
    recording_argument,
)

if TYPE_CHECKING:
    from inductoscope.analysis.bounds.kernels import JudgedGraph
    from inductoscope.model.entities import Recording


@click.command("bounds")
@recording_argument()
@click.option(
    "--try",
    "trying",
    is_flag=True,
    help="Compile the graph again and run it at a size that breaks.",
)
@click.option(
    "--sizes",
    "edges",
    is_flag=True,
    help="Compile every graph again and run it at the ends of its sizes' ranges.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="With --try or --sizes: stop one graph after this long.",
)
@pager_option
@json_option("every access")
@quiet_option
def command(
    recording: Path | None,
    trying: bool,
    edges: bool,
    timeout: float,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Prove that kernels stay inside their buffers.

    Looks at every load and store of every loop body. Each is proven for all sizes that the guards
    admit, or broken, with sizes and a point of the loops that leave the buffer, or it depends on
    data. Then looks whether indices of 32 bits suffice. RECORDING defaults to the last one.

    \b
    inductoscope bounds
    inductoscope bounds RECORDING --try

    --try runs the graph at such a size on the CPU, in a child process, with made-up inputs in
    guarded memory, and compares with eager. --sizes does so for every graph whose sizes may vary,
    at both ends of each range, and around multiples and vectors.

    Exit code: 0 nothing is broken, 1 an access, an index or a run is, 2 unreadable input.
    """
    from inductoscope.analysis.bounds.kernels import judge_recording
    from inductoscope.views.report.bounds import bounds_view, is_broken, print_bounds

    loaded = read_recording(recording)
    judged = list(judge_recording(loaded))
    view = bounds_view(loaded, judged)
    if trying or edges:
        wanted = (trying, edges)
        view["trials"] = _trials(loaded, judged, wanted, timeout=timeout, quiet=quiet)
    print_view(view, json_path, print_bounds)
    sys.exit(1 if is_broken(view) or any(t["fails"] for t in view["trials"]) else 0)


def _trials(
    recording: Recording,
    judged: list[JudgedGraph],
    wanted: tuple[bool, bool],
    *,
    timeout: float,
    quiet: bool,
) -> list[dict[str, Any]]:
    from dataclasses import asdict

    from inductoscope.doctor.size_trials import try_broken_sizes, try_edge_sizes
    from inductoscope.views.report.progress import ProgressLine

    with ProgressLine(quiet=quiet) as progress:
        ways = (try_broken_sizes, try_edge_sizes)
        trials = [
            trial
            for way, is_wanted in zip(ways, wanted, strict=True)
            if is_wanted
            for trial in way(recording, judged, seconds=timeout, say=progress.say)
        ]
    return [asdict(trial) for trial in trials]
