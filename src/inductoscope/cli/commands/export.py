"""`inductoscope export`."""

from __future__ import annotations

from pathlib import Path

import click

from inductoscope.cli.parameters import WordChoice, json_option, print_view, recording_argument

_FORMS = ("perfetto", "graphviz", "json", "raw")


@click.command("export")
@recording_argument()
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Write into this folder, which is created if needed.",
)
@click.option(
    "--form",
    "forms",
    multiple=True,
    type=WordChoice(_FORMS),
    help="Write only this form; repeat for more.  [default: all]",
)
@json_option("the list of files")
def command(
    recording: Path | None, folder: Path, forms: tuple[str, ...], json_path: str | None
) -> None:
    """Export a recording to Perfetto, GraphViz, JSON or plain files.

    RECORDING defaults to the last one. An existing file is replaced only if an earlier export
    wrote it and nobody has changed it since. manifest.json describes every file.

    \b
    perfetto   trace.json: compile time by process, stage and graph
    graphviz   FX graphs, and scheduler graphs before and after fusion
    json       recording.json: everything in one file
    raw        graphs, IR, loop bodies, kernels, wrappers, PTX as files
    """
    from inductoscope.model.fold import load
    from inductoscope.recording.location import last_recording
    from inductoscope.views.export import export
    from inductoscope.views.export.folder import export_view, print_export

    path = recording or last_recording()
    view = export_view(str(path), folder, export(load(path), folder, forms))
    print_view(view, json_path, print_export)
