"""`inductoscope env`."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING

import click

from inductoscope.cli.parameters import json_option, print_view

if TYPE_CHECKING:
    from inductoscope.views.env.collection import Environment

FOUND_NOTHING, FOUND_SOMETHING, COULD_NOT_LOOK = 0, 1, 3


def _existing_python(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    if value is None:
        return sys.executable
    found = shutil.which(value)
    if found is None:
        raise click.BadParameter(f"{value} is not an executable program.")
    return found


@click.command("env")
@click.option("--flags", is_flag=True, help="List torch's debugging flags too.")
@json_option("the result")
@click.option(
    "--python",
    metavar="PATH",
    callback=_existing_python,
    help="Check the torch of this Python.  [default: the one that runs inductoscope]",
)
@click.pass_context
def command(context: click.Context, *, flags: bool, json_path: str | None, python: str) -> None:
    """Check the installed torch, compilers and devices.

    inductoscope relies on private names inside torch and on the text of its log lines. This
    command looks each of them up. A missing name disables the view that needs it, nothing else.

    With --flags: the environment variables, TORCH_LOGS names and config keys used to debug
    Inductor, with their current values, when they take effect, what replaced them, and which
    inductoscope command sets them for you.

    \b
    Exit code: 0 nothing is missing, 1 something is, 3 torch cannot be imported.
    """
    from inductoscope.views.env.collection import collect_environment
    from inductoscope.views.report.environment import environment_view, print_environment

    environment = collect_environment(python)
    view = environment_view(environment, flags=flags)
    print_view(view, json_path, print_environment)
    context.exit(_exit_code(environment))


def _exit_code(environment: Environment) -> int:
    if environment.problem is not None:
        return COULD_NOT_LOOK
    return FOUND_SOMETHING if environment.missing else FOUND_NOTHING
