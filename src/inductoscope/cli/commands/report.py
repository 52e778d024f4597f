"""`inductoscope report`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import click


@click.command("report")
@click.argument("recording", required=False, type=click.Path(path_type=Path))
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    help="Where to write the page.",
)
@click.option("--json", "json_path", metavar="PATH", help="Write the data as JSON ('-': stdout).")
def command(recording: Path | None, output: Path, json_path: str | None) -> None:
    """Write one HTML page of a recording: every stage, linked line by line.

    Without RECORDING it is the last one that was made. The page is one file with everything in it:
    it opens from disk, without a network, and can be attached to a bug report. It exits with 1 if
    there is a problem in the recording.

    \b
    inductoscope report
    inductoscope report recordings/train -o train.html
    """
    from inductoscope.model.fold import load
    from inductoscope.page.contents import Contents
    from inductoscope.page.document import write_page
    from inductoscope.recording.location import last_recording
    from inductoscope.report.terminal import Printer, write_json

    gc.disable()  # A short life, and much that lives as long: nothing to collect.
    found = Contents(load(recording or last_recording()))
    size = write_page(found, output)
    view = {"path": str(output.absolute()), "bytes": size, "index": found.index}
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        printer = Printer()
        printer.line(f"{view['path']} ({size / 1e6:.1f} MB)")
        printer.line(
            f"{len(found.index['graphs'])} graph(s), {len(found.index['findings'])} finding(s)"
        )
    problems = any(finding["severity"] == "error" for finding in found.index["findings"])
    sys.exit(1 if problems else 0)
