"""`inductoscope show`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from inductoscope.report.stage_names import STAGES


@click.command("show")
@click.argument("recording", required=False, type=click.Path(path_type=Path))
@click.option(
    "--stage",
    type=click.Choice(STAGES),
    metavar="STAGE",
    help=f"One stage in full: {', '.join(STAGES)}.",
)
@click.option("--op", "operation", metavar="NAME", help="Follow one operation through all stages.")
@click.option("--source", metavar="FILE[:LINE]", help="Follow what a line of the program became.")
@click.option("--kernel", metavar="NAME", help="One kernel: source, contents, native compile.")
@click.option(
    "--form",
    type=click.Choice(["ttir", "ttgir", "llir", "ptx", "amdgcn"]),
    help="With --kernel: a Triton kernel on its way to machine code.",
)
@click.option("--compile", "compile_id", metavar="ID", help="Only this compile, for instance 0/0.")
@click.option("--runnable", metavar="GRAPH", help="Write a graph as a script, e.g. '0/0 dynamo'.")
@click.option("--to", "target", metavar="PATH", help="Where --runnable writes ('-': stdout).")
@click.option("--json", "json_path", metavar="PATH", help="Write the data as JSON ('-': stdout).")
@click.option("--list", "list_all", is_flag=True, help="List all recordings.")
def command(
    recording: Path | None,
    json_path: str | None,
    list_all: bool,
    **options: str | None,
) -> None:
    """Show what a recording holds: compiles, stages, kernels.

    Without RECORDING it is the last one that was made. Without an option it is the summary, which
    exits with 1 if there is a problem in it.

    \b
    inductoscope show --op relu
    inductoscope show --stage fusion
    inductoscope show --source model.py:12
    inductoscope show --runnable "0/0 post-grad" --to graph.py
    """
    from inductoscope.report.terminal import Printer, write_json

    if list_all:
        view, render = _list_recordings()
    else:
        view, render = _build(recording, options)
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        render(Printer(), view)
    sys.exit(1 if any(finding["is_problem"] for finding in view.get("findings", ())) else 0)


def _list_recordings() -> tuple[Any, Any]:
    from inductoscope.recording.location import all_recordings
    from inductoscope.report.recordings import print_recordings, recordings_view

    return recordings_view(all_recordings()), print_recordings


def _build(path: Path | None, options: dict[str, str | None]) -> tuple[Any, Any]:
    from inductoscope.model.fold import load
    from inductoscope.recording.location import last_recording
    from inductoscope.report.show import Selection, choose_view

    selection = Selection(
        stage=options["stage"] or "",
        operation=options["operation"] or "",
        source=options["source"] or "",
        kernel=options["kernel"] or "",
        form=options["form"] or "",
        compile=options["compile_id"] or "",
        runnable=options["runnable"] or "",
        target=options["target"] or "",
    )
    return choose_view(load(path or last_recording()), selection)
