"""The command line. Start-up imports neither torch nor rich, so that help is instant."""

from __future__ import annotations

import importlib
import io
import sys

import click

from inductoscope.errors import InductoscopeError
from inductoscope.version import __version__
from inductoscope.views.report.plain_text import visible

COMMANDS: tuple[str, ...] = (
    "doctor",
    "run",
    "show",
    "report",
    "serve",
    "fusion",
    "diff",
    "export",
    "explain",
    "logs",
    "attach",
    "kernel",
    "env",
    "completion",
)

# What shells report for Ctrl-C: 128 plus the number of the signal.
_INTERRUPTED = 130


class _LazyGroup(click.Group):
    """Imports a command's module only when the command is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"inductoscope.cli.commands.{cmd_name}")
        found = module.command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="inductoscope")
def _cli() -> None:
    """A debugger for Inductor, the compiler behind torch.compile.

    Start with 'inductoscope doctor SCRIPT'.

    Exit codes: 0 clean, 1 something found, 2 bad usage or unreadable input, 3 the tool failed.
    'run' exits with the exit code of the program it ran.
    """


def main() -> None:
    """Run the command line; errors raised on purpose become one line and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show is escaped instead of raising an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _cli.main(prog_name="inductoscope", standalone_mode=False)
    except InductoscopeError as error:
        click.echo(f"inductoscope: {visible(str(error))}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("inductoscope: interrupted", err=True)
        sys.exit(_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
