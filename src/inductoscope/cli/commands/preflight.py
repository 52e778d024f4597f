"""`inductoscope preflight`."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from inductoscope.cli.parameters import (
    json_option,
    program_argument,
    quiet_option,
    ranks_page_option,
    target_option,
)
from inductoscope.errors import UsageError

if TYPE_CHECKING:
    from inductoscope.preflight.prediction import Preflight

# Exit codes by verdict; all other verdicts are findings.
_EXIT_CODES = {"clean": 0, "failed": 4, "nothing compared": 4}
_FOUND = 1
_LAUNCHERS = ("torchrun", "accelerate", "deepspeed", "mpirun", "srun")
_MOST_RANKS = 100_000


@click.command(
    "preflight",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--world",
    type=click.IntRange(min=2, max=_MOST_RANKS),
    metavar="N",
    required=True,
    help="How many ranks the job has.",
)
@click.option(
    "--ranks",
    "chosen",
    metavar="LIST",
    help="Run only these ranks, such as 0,1,7 or 0-3.  [default: all]",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Run so many ranks at a time.  [default: one per core]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=1.0),
    metavar="SECONDS",
    default=600.0,
    show_default=True,
    help="End a rank that takes longer.",
)
@target_option("Pretend that every rank has this GPU; tensors then have no values")
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Keep traces and output of all ranks in this new folder.",
)
@ranks_page_option
@quiet_option
@json_option("the result")
@program_argument
@click.pass_context
def command(
    context: click.Context,
    *,
    world: int,
    chosen: str | None,
    jobs: int | None,
    timeout: float,
    target: str | None,
    output: Path | None,
    page: Path | None,
    quiet: bool,
    json_path: str | None,
    words: tuple[str, ...],
) -> None:
    """Compile as every rank on one machine, and predict hangs.

    Runs the script once for each rank of a job, with torch's fake process group: every collective
    is answered at once and nothing is sent. Then graphs, partitions, collectives and cache keys
    are compared between ranks. A rank that calls other collectives than the rest hangs the job.

    \b
    inductoscope preflight --world 8 train.py --steps 1
    inductoscope preflight --world 512 --ranks 0,1,8,511 train.py

    \b
    Exit code: 0 all ranks do the same, 1 they differ or some fail, 2 bad usage,
    4 too little to compare: the program fails as every rank, or no rank
    compiled anything or called a collective.
    """
    from inductoscope.preflight.prediction import examine
    from inductoscope.preflight.rank_processes import PretendedJob, run_ranks
    from inductoscope.processes.status import own_cores
    from inductoscope.views.report.progress import ProgressLine

    with ExitStack() as stack:
        job = PretendedJob(
            command=tuple(_command(words)),
            world=world,
            ranks=_ranks(chosen, world),
            folder=_folder(output, stack),
            target=_target(target),
            seconds=timeout,
            at_once=jobs or len(own_cores()),
        )
        with ProgressLine(quiet=quiet) as progress:
            runs = run_ranks(job, progress.say)
        verdict = _show(examine(job, runs), json_path, page, kept=output is not None)
    context.exit(_EXIT_CODES.get(verdict, _FOUND))


def _show(found: Preflight, json_path: str | None, page: Path | None, *, kept: bool) -> str:
    """Print the prediction, write the JSON and the page, and return the verdict."""
    from inductoscope.views.page.ranks_page import write_ranks_page
    from inductoscope.views.report.preflight import preflight_view, print_preflight
    from inductoscope.views.report.terminal import Printer, write_json

    view = preflight_view(found)
    if not kept:
        view["folder"] = ""
    if page is not None and view["ranks"] is not None:
        write_ranks_page(view["ranks"], page)
        click.echo(f"wrote {page}", err=True)
    if json_path is not None:
        write_json(view, json_path)
    if json_path != "-":
        print_preflight(Printer(), view, kept=kept)
    return str(view["verdict"])


def _command(words: tuple[str, ...]) -> list[str]:
    from inductoscope.launch.program import resolve_command

    if words and Path(words[0]).name in _LAUNCHERS:
        raise UsageError(
            f"{words[0]} starts the ranks itself. Give the script that it starts, and the number "
            "of ranks: inductoscope preflight --world 8 train.py."
        )
    if not words:
        raise UsageError(
            "Nothing to run. Give a script: inductoscope preflight --world 8 train.py."
        )
    return resolve_command(words)


def _ranks(text: str | None, world: int) -> tuple[int, ...]:
    """Parse a list of ranks: 0,1,7 or 0-3."""
    if text is None:
        return tuple(range(world))
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise UsageError(f"--ranks {text}: {part!r} is no rank. Write 0,1,7 or 0-3.")
        begin, end = int(first), int(last) if dash else int(first)
        if end >= world or begin > end:
            raise UsageError(f"--ranks {text}: with --world {world}, ranks are 0 to {world - 1}.")
        found.update(range(begin, end + 1))
    if len(found) < 2:
        raise UsageError(f"--ranks {text} names one rank, and there is nothing to compare it with.")
    return tuple(sorted(found))


def _folder(output: Path | None, stack: ExitStack) -> Path:
    from inductoscope.errors import unwritable

    if output is None:
        made = tempfile.TemporaryDirectory(prefix="inductoscope-", ignore_cleanup_errors=True)
        return Path(stack.enter_context(made))
    try:
        output.mkdir(parents=True)
    except FileExistsError:
        raise UsageError(f"--output {output} exists already. Name a new folder.") from None
    except OSError as error:
        raise unwritable(output, error) from error
    return output.absolute()


def _target(target: str | None) -> str:
    from inductoscope.torch_facts.gpu_targets import read_target

    return "" if target is None else str(read_target(target))
