"""`inductoscope export`."""

from __future__ import annotations

from pathlib import Path

import click

_FORMS = ("perfetto", "graphviz", "json", "raw")


@click.command("export")
@click.argument("recording", required=False, type=click.Path(path_type=Path))
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder to write into; made where it is not there.",
)
@click.option(
    "--form",
    "forms",
    multiple=True,
    type=click.Choice(_FORMS),
    help="Which form; may be given several times.  [default: all]",
)
@click.option("--json", "json_path", metavar="PATH", help="List the files as JSON ('-': stdout).")
def command(
    recording: Path | None, folder: Path, forms: tuple[str, ...], json_path: str | None
) -> None:
    """Write a recording in forms that other programs read.

    Without RECORDING it is the last one that was made. Files that are there already are replaced
    only if an export wrote them and nobody changed them since; the manifest says what is what.

    \b
    perfetto   trace.json: compile time by process, stage and graph
    graphviz   FX graphs, and the scheduler's before and after fusion
    json       recording.json: everything in one file
    raw        graphs, IR, loop bodies, kernels, wrappers, PTX as files
    """
    from inductoscope.model.fold import load
    from inductoscope.recording.location import last_recording
    from inductoscope.views.export import export
    from inductoscope.views.report.export import export_view, print_export
    from inductoscope.views.report.terminal import Printer, write_json

    path = recording or last_recording()
    view = export_view(str(path), folder, export(load(path), folder, forms))
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        print_export(Printer(), view)
