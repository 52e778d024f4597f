"""`inductoscope show`."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Any

import click

from inductoscope.cli.parameters import (
    WordChoice,
    json_option,
    pager_option,
    print_view,
    read_recording,
    recording_argument,
    target_option,
)
from inductoscope.torch_facts.stages import SHOWN, SHOWN_AS


@click.command("show")
@recording_argument()
@click.option(
    "--stage",
    type=WordChoice(SHOWN, also=SHOWN_AS),
    metavar="STAGE",
    help=f"Show one stage in full: {', '.join(SHOWN)}.",
)
@click.option("--op", "operation", metavar="NAME", help="Follow an operation through all stages.")
@click.option("--source", metavar="FILE[:LINE]", help="Show what a source line became.")
@click.option("--kernel", metavar="NAME", help="Show a kernel: source, contents, compile.")
@click.option(
    "--form",
    type=WordChoice(["ttir", "ttgir", "llir", "ptx", "sass", "amdgcn", "asm"]),
    metavar="FORM",
    help="With --kernel: show ttir, ttgir, llir, ptx, sass or amdgcn of a Triton kernel, asm of a "
    "C++ kernel.",
)
@click.option("--compile", metavar="ID", help="Show only this compile, such as 0/0.")
@target_option("Show what this GPU would get, even without having one")
@click.option(
    "--runnable", metavar="GRAPH", help="Write a graph as a script, such as '0/0 dynamo'."
)
@click.option(
    "--to",
    "write_to",
    metavar="PATH",
    help="With --runnable: write to this file instead of graph_GRAPH.py; - means standard output.",
)
@json_option("the data")
@pager_option
@click.option("--list", "list_all", is_flag=True, help="List all recordings.")
def command(
    recording: Path | None,
    json_path: str | None,
    list_all: bool,
    target: str | None,
    **options: str | None,
) -> None:
    """Show a recording: its compiles, stages and kernels.

    RECORDING is a folder or a name from --list, and defaults to the last one. Without options you
    see the summary, which exits with 1 if it reports a problem.

    --target recompiles the recorded graphs for that GPU, in a child process. Nothing runs on a
    GPU, and the result is cached.

    \b
    inductoscope show --op relu
    inductoscope show --stage fusion
    inductoscope show --source model.py:12
    inductoscope show --op softmax --target cuda:90
    inductoscope show --runnable "0/0 post-grad" --to graph.py
    """
    gc.disable()  # Objects live as long as this short process.
    if list_all:
        from inductoscope.model.stored_recordings import stored_recordings
        from inductoscope.views.report.recordings import print_recordings, recordings_view

        view = recordings_view(stored_recordings())
        print_view(view, json_path, print_recordings)
    else:
        from inductoscope.views.report.show import ShowSelection, choose_view

        selection = ShowSelection(**{name: value or "" for name, value in options.items()})
        view, render = choose_view(read_recording(recording, target), selection)
        print_view(view, json_path, render)
    sys.exit(1 if _reports_problem(view) else 0)


def _reports_problem(view: dict[str, Any]) -> bool:
    """Check whether a finding is a problem, or the doctor found one."""
    from inductoscope.doctor.verdict import exit_code

    verdict = view.get("verdict")
    if verdict is not None and exit_code(verdict["verdict"]) == 1:
        return True
    return any(finding["is_problem"] for finding in view.get("findings", ()))
