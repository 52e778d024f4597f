"""`inductoscope diff`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from inductoscope.cli.parameters import json_option, pager_option, print_view, recording_argument
from inductoscope.errors import UsageError
from inductoscope.wording import count_of


@click.command("diff")
@recording_argument("first")
@recording_argument("second")
@click.option("--kernel", metavar="NAME", help="Show how the source of this kernel changed.")
@click.option("--stage", metavar="STAGE", help="Show how the output of this stage changed.")
@pager_option
@json_option("the data")
def command(
    first: Path | None,
    second: Path | None,
    kernel: str | None,
    stage: str | None,
    json_path: str | None,
) -> None:
    """Compare two recordings and say what changed first.

    Lists the first stage that differs, and the fusions and kernels gained and lost. Renamed nodes,
    buffers and kernels count as equal. SECOND defaults to the last recording; without both, the
    last two are compared.

    \b
    inductoscope diff before/ after/
    inductoscope diff before/ after/ --kernel cpp_fused_relu_0
    inductoscope diff before/ after/ --stage post-grad-pass

    Exit code: 0 no difference, 1 something differs, 2 unreadable input.
    """
    from inductoscope.analysis.diff.compare import compare
    from inductoscope.model.fold import load
    from inductoscope.views.report.difference import (
        difference_view,
        print_difference,
        print_texts,
        texts_view,
    )

    if kernel and stage:
        raise UsageError("--kernel and --stage cannot be combined. Choose one.")
    one, other = _chosen(first, second)
    view, render = difference_view(compare(load(one), load(other))), print_difference
    if kernel or stage:
        view, render = texts_view(view, kernel=kernel or "", stage=stage or ""), print_texts
    print_view(view, json_path, render)
    sys.exit(1 if view["differs"] else 0)


def _chosen(first: Path | None, second: Path | None) -> tuple[Path, Path]:
    from inductoscope.recording.location import all_recordings, last_recording

    if first is not None:
        return first, second or last_recording()
    found = all_recordings()
    if len(found) < 2:
        raise UsageError(
            f"Found {count_of(len(found), 'recording')}, and diff needs two. Name them: "
            "'inductoscope diff FIRST SECOND'."
        )
    return found[-2], found[-1]
