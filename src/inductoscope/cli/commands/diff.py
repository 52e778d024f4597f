"""`inductoscope diff`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from inductoscope.errors import UsageError


@click.command("diff")
@click.argument("first", required=False, type=click.Path(path_type=Path))
@click.argument("second", required=False, type=click.Path(path_type=Path))
@click.option("--kernel", metavar="NAME", help="Show how the source of a kernel changed.")
@click.option("--stage", metavar="STAGE", help="Show how what a stage made changed.")
@click.option("--json", "json_path", metavar="PATH", help="Write the data as JSON ('-': stdout).")
def command(
    first: Path | None,
    second: Path | None,
    kernel: str | None,
    stage: str | None,
    json_path: str | None,
) -> None:
    """Compare two recordings: where they part, fusions and kernels gained and lost.

    Without SECOND it is the last recording that was made, and without FIRST the one before it.
    Nodes, buffers and kernels that only have other names count as the same.

    \b
    inductoscope diff before/ after/
    inductoscope diff before/ after/ --kernel cpp_fused_relu_0
    inductoscope diff before/ after/ --stage post-grad-pass

    Exit code: 0 the same, 1 something differs, 2 unreadable.
    """
    from inductoscope.analysis.diff import compare
    from inductoscope.model.fold import load
    from inductoscope.views.report.difference import (
        difference_view,
        print_difference,
        print_texts,
        texts_view,
    )
    from inductoscope.views.report.terminal import Printer, write_json

    if kernel and stage:
        raise UsageError("--kernel and --stage are views of their own. Choose one of them.")
    one, other = _chosen(first, second)
    view, render = difference_view(compare(load(one), load(other))), print_difference
    if kernel or stage:
        view, render = texts_view(view, kernel=kernel or "", stage=stage or ""), print_texts
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        render(Printer(), view)
    sys.exit(1 if view["differs"] else 0)


def _chosen(first: Path | None, second: Path | None) -> tuple[Path, Path]:
    from inductoscope.recording.location import all_recordings, last_recording

    if first is not None:
        return first, second or last_recording()
    found = all_recordings()
    if len(found) < 2:
        raise UsageError(
            f"There are {len(found)} recordings to choose from. Name two: "
            "'inductoscope diff FIRST SECOND'."
        )
    return found[-2], found[-1]
