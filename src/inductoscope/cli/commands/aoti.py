"""`inductoscope aoti`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from inductoscope.cli.commands.doctor import command as doctor
from inductoscope.cli.parameters import json_option, long_output, pager_option, quiet_option
from inductoscope.errors import UsageError

_SCRIPTS = (".py",)


@click.command("aoti")
@click.option("--model", "name", metavar="NAME", help="Choose a model if the package has several.")
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
    name: str | None,
    everything: bool,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Look into an AOTInductor package and run it.

    MODEL.pt2 is what torch._inductor.aoti_compile_and_package writes; a .so of aot_compile and a
    file of torch.export.save are read, too. Lists inputs with the sizes, types and strides that
    they have to have, constants, kernels in the order of their calls, custom operators and build
    flags. Nothing in the file is executed.

    SCRIPT is a program that exports, compiles and calls a model: it is examined as by
    `inductoscope doctor`, which has more options. Put -- before options of SCRIPT's.

    \b
    inductoscope aoti model.pt2
    inductoscope aoti export_and_run.py

    Exit code: 0 it fits, 1 it does not, 2 unreadable file, 3 the tool failed.
    """
    if file.suffix in _SCRIPTS:
        context.invoke(doctor, words=(str(file), *arguments), json_path=json_path, quiet=quiet)
    if arguments:
        raise UsageError(f"{file} is a package, which takes no arguments: {' '.join(arguments)}")
    view = _inspected(file, name)
    _hand_over(view, json_path, everything=everything)
    sys.exit(0 if view["verdict"] == "fits" else 1)


def _inspected(file: Path, name: str | None) -> dict[str, Any]:
    from inductoscope.packages.fitting import fits
    from inductoscope.packages.package import read_package
    from inductoscope.packages.this_machine import look_at_this_machine
    from inductoscope.views.report.package import package_view

    package = read_package(file)
    models = package.models if name is None else (package.model(name),)
    here = look_at_this_machine()
    return package_view(package, {model.name: fits(package, model, here) for model in models})


def _hand_over(view: dict[str, Any], json_path: str | None, *, everything: bool) -> None:
    from inductoscope.views.report.package import print_package
    from inductoscope.views.report.terminal import write_json

    if json_path is not None:
        write_json(view, json_path)
    if json_path != "-":
        with long_output() as printer:
            print_package(printer, view, everything=everything)
