"""`inductoscope env`."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from inductoscope.views.env import Environment

FOUND_NOTHING, FOUND_SOMETHING, COULD_NOT_LOOK = 0, 1, 3


def _existing_python(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    if value is None:
        return sys.executable
    found = shutil.which(value)
    if found is None:
        raise click.BadParameter(f"{value} is not a program that can be run.")
    return found


@click.command("env")
@click.option("--flags", is_flag=True, help="Also list every flag of torch that helps debugging.")
@click.option("--json", "target", metavar="PATH", help="Write the result there; - is stdout.")
@click.option(
    "--python",
    metavar="PATH",
    callback=_existing_python,
    help="The Python whose torch to look at.  [default: the one that runs inductoscope]",
)
@click.pass_context
def command(context: click.Context, *, flags: bool, target: str | None, python: str) -> None:
    """Show versions, compilers and devices, and check the installed torch.

    inductoscope relies on private names inside torch and on the text of its log lines. Each is
    looked up in the installed torch: a missing one switches off what needs it, and nothing else.

    With --flags: the environment variables, TORCH_LOGS names and config keys that people set to
    debug Inductor, whether this torch knows them, their value now, when they act, what has
    replaced them and which of our commands sets them.

    \b
    Exit code: 0 all is there, 1 something is missing, 3 torch cannot be imported.
    """
    from inductoscope.views.env import collect_environment
    from inductoscope.views.report.environment import environment_view
    from inductoscope.views.report.terminal import write_json

    environment = collect_environment(python)
    view = environment_view(environment, flags=flags)
    if target is not None:
        write_json(view, target)
    if target != "-":
        _print(view)
    context.exit(_exit_code(environment))


def _print(view: dict[str, Any]) -> None:
    from rich.console import Console

    from inductoscope.views.report.environment import render_environment

    render_environment(view, Console(highlight=False))


def _exit_code(environment: Environment) -> int:
    if environment.problem is not None:
        return COULD_NOT_LOOK
    return FOUND_SOMETHING if environment.missing else FOUND_NOTHING
