"""`inductoscope fusion`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from inductoscope.analysis.fusion.naming import Found
    from inductoscope.model.entities import Recording


@click.command("fusion")
@click.argument("recording", required=False, type=click.Path(path_type=Path))
@click.option(
    "--why",
    "names",
    nargs=2,
    metavar="A B",
    help="One pair in full: nodes, buffers, kernels, FX nodes or operations.",
)
@click.option("--try", "trying", is_flag=True, help="With --why: compile with other settings.")
@click.option("--graph", metavar="KEY", help="Only this graph, for instance '0/0 forward'.")
@click.option("--outcome", type=click.Choice(["fused", "refused", "never"]), help="Only these.")
@click.option(
    "--sort",
    type=click.Choice(["bytes", "order", "score", "reason"]),
    default="bytes",
    show_default=True,
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Rows of the table to print.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(min=0.001),
    metavar="GB/s",
    help="Memory bandwidth to tell time from bytes.  [default: as published for the GPU]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=300.0,
    show_default=True,
    help="With --try: seconds for one compile.",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the data as JSON ('-': stdout).")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def command(
    recording: Path | None,
    names: tuple[str, str] | None,
    json_path: str | None,
    **options: Any,
) -> None:
    """The fusion ledger: what was fused, refused and why, or never tried.

    Every two scheduler nodes that share data are listed: one reads what the other writes, or both
    read the same. A refusal costs the bytes that are moved once more; the costliest come first.
    Without RECORDING it is the last one that was made.

    \b
    inductoscope fusion
    inductoscope fusion --outcome never --graph '0/0 forward'
    inductoscope fusion --why relu sum
    inductoscope fusion --why op3 op7 --try

    With --try the recorded graph is compiled again, in a child process with a time limit, with
    settings that may lift the condition. It is neither run nor timed.
    """
    from inductoscope.model.fold import load
    from inductoscope.recording.location import last_recording
    from inductoscope.views.report.terminal import Printer, write_json

    loaded = load(recording or last_recording())
    view, render = _pair(loaded, names, options) if names else _ledger(loaded, options)
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        render(Printer(), view)


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
    from inductoscope.views.report.fusion_pair import pair_view, print_pair

    found = find_pair(recording, *names, graph=options["graph"] or "")
    view = pair_view(recording, found, bandwidth=options["bandwidth"])
    if options["trying"]:
        view["trials"] = _trials(recording, found, options)
    return view, print_pair


def _trials(recording: Recording, found: Found, options: dict[str, Any]) -> list[Any]:
    from inductoscope.analysis.fusion.trying import try_settings
    from inductoscope.targets.recompile import RecompileLimits
    from inductoscope.views.report.fusion_pair import trials_view
    from inductoscope.views.report.progress import Progress

    row = found.row
    if row is None or row.outcome == "fused":
        return []
    limits = RecompileLimits(seconds=options["timeout"])
    with Progress(quiet=options["quiet"]) as progress:
        trials = list(try_settings(recording, row, limits=limits, say=progress.say))
    return trials_view(row, trials)
