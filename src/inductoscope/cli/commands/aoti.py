"""`inductoscope aoti`."""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from inductoscope.cli.commands.doctor import command as doctor
from inductoscope.cli.parameters import json_option, pager_option, print_view, quiet_option
from inductoscope.errors import ToolFailure, UsageError

if TYPE_CHECKING:
    from inductoscope.packages.execution import PackageTrial, RunRequest
    from inductoscope.packages.fitting import LocalMachine

_SCRIPTS = (".py",)


@click.command("aoti")
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Run the model with these inputs: torch.save((x, y), FILE).",
)
@click.option(
    "--ops",
    "operators",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Define custom operators first: a .so is loaded, a .py is run.",
)
@click.option(
    "--serve",
    is_flag=True,
    help="Also call it as a server would: many times, from several threads, from C++.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=2),
    default=4,
    show_default=True,
    metavar="N",
    help="Threads of --serve.",
)
@click.option(
    "--calls",
    type=click.IntRange(min=40),
    default=400,
    show_default=True,
    metavar="N",
    help="Calls of --serve.",
)
@click.option("--model", "name", metavar="NAME", help="Choose a model if the package has several.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.1),
    default=120.0,
    show_default=True,
    metavar="SECONDS",
    help="Stop the child process after this long.",
)
@click.option(
    "--memory",
    type=click.FloatRange(min=0.1),
    default=64.0,
    show_default=True,
    metavar="GIB",
    help="Limit the address space of the child process.",
)
@click.option("--all", "everything", is_flag=True, help="List every constant and every call.")
@pager_option
@json_option("the result")
@quiet_option
@click.argument("file", type=click.Path(path_type=Path), metavar="MODEL.pt2|SCRIPT")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGUMENT]...")
@click.pass_context
def command(
    context: click.Context,
    file: Path,
    arguments: tuple[str, ...],
    inputs: Path | None,
    operators: tuple[Path, ...],
    serve: bool,
    threads: int,
    calls: int,
    name: str | None,
    timeout: float,
    memory: float,
    everything: bool,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Look into an AOTInductor package and run it.

    MODEL.pt2 is what torch._inductor.aoti_compile_and_package writes; a .so of aot_compile and a
    file of torch.export.save are read, too. Lists inputs with the sizes, types and strides that
    they have to have, constants, kernels in the order of their calls, custom operators and build
    flags, and says whether it fits this machine. Without --inputs nothing in it is executed.

    With --inputs the model runs in a child process. Loading a package executes native code from
    it: do this only with packages that you trust. The inputs are checked first against what the
    package demands of them, which it does not do by itself.

    --serve calls it many times, in Python and in a C++ program that is built here, from several
    threads: calls that interfere, memory that grows, files that stay open.

    SCRIPT is a program that exports, compiles and calls a model: it is examined as by
    `inductoscope doctor`, which has more options. Put -- before options of SCRIPT's.

    \b
    inductoscope aoti model.pt2
    inductoscope aoti model.pt2 --inputs inputs.pt
    inductoscope aoti model.pt2 --inputs inputs.pt --serve --threads 8
    inductoscope aoti export_and_run.py

    Exit code: 0 it fits, or runs; 1 it does not; 2 unreadable file; 3 the tool failed.
    """
    if file.suffix in _SCRIPTS:
        context.invoke(doctor, words=(str(file), *arguments), json_path=json_path, quiet=quiet)
    if arguments:
        raise UsageError(f"{file} is a package, which takes no arguments: {' '.join(arguments)}")
    if inputs is None and (operators or serve):
        option = "--serve" if serve else "--ops"
        raise UsageError(f"{option} needs --inputs: without inputs nothing is loaded or run.")
    request = None
    if inputs is not None:
        from inductoscope.packages.execution import RunRequest
        from inductoscope.processes.children import ChildLimits

        # SIGTERM acts like Ctrl-C: nothing is left running.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        limits = ChildLimits(seconds=timeout, memory_gib=memory)
        serving = {"threads": threads, "calls": calls} if serve else {}
        request = RunRequest(inputs, operators, limits, serving)
    view = _examined(file, name, request, quiet=quiet)
    from inductoscope.views.report.package import print_package

    print_view(view, json_path, partial(print_package, everything=everything))
    sys.exit(0 if view["verdict"] in ("fits", "runs") else 1)


def _examined(
    file: Path, name: str | None, request: RunRequest | None, *, quiet: bool
) -> dict[str, Any]:
    """Look into a package, and run it unless it is known that it cannot run here."""
    from inductoscope.packages.execution import PackageTrial
    from inductoscope.packages.fitting import fits, look_at_this_machine
    from inductoscope.packages.package import read_package
    from inductoscope.views.report.package import package_view
    from inductoscope.views.report.progress import ProgressLine

    package = read_package(file)
    # If a model is run or named, only its compatibility matters.
    is_one = request is not None or name is not None
    models = (package.model(name),) if is_one else package.models
    operators = request.operators if request is not None else ()
    here = look_at_this_machine(tuple(file for file in operators if file.suffix == ".so"))
    view = package_view(package, {model.name: fits(package, model, here) for model in models})
    if request is None or view["verdict"] == "does not fit":
        return view
    with _private_folder() as place, ProgressLine(quiet=quiet) as progress:
        trial = PackageTrial(package, models[0], request, place, progress.say)
        return _executed(trial, view, here)


def _executed(trial: PackageTrial, view: dict[str, Any], here: LocalMachine) -> dict[str, Any]:
    from inductoscope.packages.execution import (
        SECOND_RUN,
        findings_of_both,
        findings_of_run,
        may_be_the_copy,
        run_package,
    )
    from inductoscope.packages.serving import findings_of_serving, serve
    from inductoscope.views.report.package import with_runs

    model, second, served = trial.model, None, None
    first = last = run_package(trial)
    findings = list(findings_of_run(first, model))
    if may_be_the_copy(first, model):
        again = replace(trial.request, cpp_library_first=True)
        trial = replace(trial, request=again, folder=trial.folder / "again")
        trial.folder.mkdir()
        trial.say(SECOND_RUN)
        second = last = run_package(trial)
        findings += findings_of_both(first, second, model)
    if trial.request.serve and last.outcome == "runs":
        served = serve(trial, last, here)
        findings += findings_of_serving(served, model)
    return with_runs(view, model.name, (first, second), served, findings)


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    try:
        with tempfile.TemporaryDirectory(prefix="inductoscope-aoti-") as folder:
            yield Path(folder)
    except OSError as error:
        raise ToolFailure(
            f"{error.filename or tempfile.gettempdir()} cannot be written: {error.strerror}. Make "
            "room there, or set TMPDIR to a folder that has some."
        ) from None
