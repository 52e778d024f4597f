"""`inductoscope fusion`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inductoscope.cli.parameters import (
    WordChoice,
    json_option,
    pager_option,
    print_view,
    quiet_option,
    read_recording,
    recording_argument,
)

if TYPE_CHECKING:
    from inductoscope.analysis.fusion.naming import FoundPair
    from inductoscope.model.entities import Recording


@click.command("fusion")
@recording_argument()
@click.option(
    "--why",
    "names",
    nargs=2,
    metavar="A B",
    help="Explain one pair: nodes, buffers, kernels, FX nodes or operations.",
)
@click.option(
    "--try", "trying", is_flag=True, help="With --why: recompile with settings that may fuse it."
)
@click.option("--graph", metavar="KEY", help="Show only this graph, such as '0/0 forward'.")
@click.option(
    "--outcome",
    type=WordChoice(["fused", "refused", "never"]),
    help="Show only pairs with this outcome.",
)
@click.option(
    "--sort",
    type=WordChoice(["bytes", "order", "score", "reason"]),
    default="bytes",
    show_default=True,
    help="Sort the table by this.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    metavar="N",
    help="Print at most N rows.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(min=0.001),
    metavar="GB/s",
    help="Memory bandwidth, to turn bytes into time.  [default: as published for the GPU]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="With --try: stop one compile after this long.",
)
@pager_option
@json_option("the ledger")
@quiet_option
def command(
    recording: Path | None,
    names: tuple[str, str] | None,
    json_path: str | None,
    **options: Any,
) -> None:
    """Show what was fused, what was not, and why.

    Lists every two scheduler nodes that share data: one reads what the other writes, or both read
    the same buffer. A pair that was not fused costs the bytes moved again; the costliest come
    first. RECORDING defaults to the last one.

    \b
    inductoscope fusion
    inductoscope fusion --outcome never --graph '0/0 forward'
    inductoscope fusion --why relu sum
    inductoscope fusion --why op3 op7 --try

    --try recompiles the recorded graph in a child process, with settings that may allow the
    fusion. The result is neither run nor timed.
    """
    loaded = read_recording(recording)
    view, render = _pair(loaded, names, options) if names else _ledger(loaded, options)
    print_view(view, json_path, render)


def _ledger(recording: Recording, options: dict[str, Any]) -> tuple[Any, Any]:
    from inductoscope.analysis.fusion.naming import check_graph
    from inductoscope.errors import UsageError
    from inductoscope.views.report.fusion import Selection, fusion_view, print_fusion

    if options["trying"]:
        raise UsageError("--try needs a pair: --why A B --try.")
    check_graph(recording, options["graph"] or "")
    selection = Selection(
        graph=options["graph"] or "",
        outcome=options["outcome"] or "",
        sort=options["sort"],
        limit=options["limit"],
        bandwidth=options["bandwidth"],
    )
    return fusion_view(recording, selection), print_fusion


def _pair(recording: Recording, names: tuple[str, str], options: dict[str, Any]) -> tuple[Any, Any]:
    from inductoscope.analysis.fusion.naming import find_pair
    from inductoscope.views.report.fusion import pair_view, print_pair

    bandwidth = options["bandwidth"]
    found = find_pair(recording, *names, graph=options["graph"] or "", bandwidth=bandwidth)
    view = pair_view(recording, found, bandwidth=bandwidth)
    if options["trying"]:
        view["trials"] = _trials(recording, found, options)
    return view, print_pair


def _trials(recording: Recording, found: FoundPair, options: dict[str, Any]) -> list[Any]:
    from inductoscope.analysis.fusion.trials import try_settings
    from inductoscope.views.report.fusion import trials_view
    from inductoscope.views.report.progress import ProgressLine

    row = found.row
    if row is None or row.outcome == "fused":
        return []
    with ProgressLine(quiet=options["quiet"]) as progress:
        found_trials = try_settings(recording, row, seconds=options["timeout"], say=progress.say)
        trials = list(found_trials)
    return trials_view(row, trials)
