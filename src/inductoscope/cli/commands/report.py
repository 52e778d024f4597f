"""`inductoscope report`."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inductoscope.cli.parameters import (
    in_a_folder,
    json_option,
    print_view,
    read_recording,
    recording_argument,
    target_option,
)

if TYPE_CHECKING:
    from inductoscope.views.report.terminal import Printer


@click.command("report")
@recording_argument()
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, dir_okay=False),
    default=Path("report.html"),
    show_default=True,
    callback=in_a_folder,
    help="Write the page to this file.",
)
@target_option("Show what this GPU would get, even without having one")
@click.option(
    "--assembly",
    type=click.IntRange(min=0),
    default=4,
    show_default=True,
    metavar="N",
    help="Show the assembly of N C++ kernels; each takes seconds to recompile.",
)
@json_option("the data")
def command(
    recording: Path | None,
    output: Path,
    target: str | None,
    assembly: int,
    json_path: str | None,
) -> None:
    """Write a recording as one HTML page, every stage linked.

    Click a line to see what it became in every other stage. The page is a single file that opens
    from disk, offline, and can be attached to a bug report. RECORDING defaults to the last one.

    \b
    inductoscope report
    inductoscope report recordings/train -o train.html
    inductoscope report --target cuda:90

    Exit code: 0 the page was written, 2 bad usage or unreadable recording.
    """
    from inductoscope.views.page.contents import Contents
    from inductoscope.views.page.document import write_page

    gc.disable()  # Objects live as long as this short process.
    found = Contents(read_recording(recording, target), assembly=assembly)
    size = write_page(found, output)
    view = {"path": str(output.absolute()), "bytes": size, "index": found.index}
    print_view(view, json_path, _print_page)
    gc.freeze()  # Skips the final collection: a tenth of the run time.


def _print_page(printer: Printer, view: dict[str, Any]) -> None:
    from inductoscope.wording import count_of

    # The path is printed unbroken, to be copied or clicked on.
    printer.code(f"{view['path']} ({view['bytes'] / 1e6:.1f} MB)", indent=0)
    graphs, findings = len(view["index"].graphs), len(view["index"].findings)
    printer.line(f"{count_of(graphs, 'graph')}, {count_of(findings, 'finding')}")
