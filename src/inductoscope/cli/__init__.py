"""The command line. Start-up imports neither torch nor rich, so that help is instant."""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import select
import shlex
import sys
from pathlib import Path
from typing import NoReturn, TextIO

import click

from inductoscope.errors import InductoscopeError, ToolFailure
from inductoscope.version import __version__
from inductoscope.views.plain_text import visible
from inductoscope.wording import did_you_mean, nearest

COMMANDS: tuple[str, ...] = (
    "doctor",
    "run",
    "show",
    "report",
    "serve",
    "fusion",
    "bounds",
    "profile",
    "diff",
    "export",
    "recordings",
    "explain",
    "logs",
    "preflight",
    "attach",
    "kernel",
    "aoti",
    "env",
    "mcp",
    "skill",
    "completion",
)

# Exit codes of shells for Ctrl-C and broken pipes: 128 plus the signal's number.
_INTERRUPTED = 130
_NO_READER = 141
# Errors of writing to an open file, most likely standard output.
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _LazyGroup(click.Group):
    """A command group that imports a command's module only when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Handled here, because click would exit with 1, which means something else.
            if _has_no_reader(sys.stdout):
                _leave_without_reader()
            raise

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"inductoscope.cli.commands.{cmd_name}")
        found = module.command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            ctx.fail(f"No such command '{args[0]}'.{_meant(args)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with whole sentences, which click would cut on narrow terminals."""
        commands = [(name, self.get_command(ctx, name)) for name in COMMANDS]
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, found.get_short_help_str(limit=200)) for name, found in commands if found]
            )


def all_commands(context: click.Context) -> dict[str, click.Command]:
    found = {name: _cli.get_command(context, name) for name in COMMANDS}
    return {name: command for name, command in found.items() if command is not None}


def _meant(words: list[str]) -> str:
    """Suggest a command for a misspelled first word, or `doctor` if it is a script."""
    if Path(words[0]).is_file():
        return f" To examine the script: inductoscope doctor {shlex.join(words)}"
    return did_you_mean(words[0], COMMANDS)


def _with_one_suggestion(error: click.ClickException) -> click.ClickException:
    """Keep only the most similar of the options that click suggests."""
    if not isinstance(error, click.NoSuchOption) or not error.possibilities:
        return error
    close = nearest(error.option_name, error.possibilities, most=1)
    return click.NoSuchOption(error.option_name, possibilities=close, ctx=error.ctx)


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="inductoscope")
def _cli() -> None:
    """A debugger for Inductor, the compiler behind torch.compile.

    Start with 'inductoscope doctor SCRIPT'.

    Exit codes: 0 clean, 1 something found, 2 bad usage or unreadable input, 3 the tool failed, 4
    nothing could be checked. 'run' exits with the exit code of the program it ran.
    """


def main() -> None:
    """Run the command line; a reader that leaves early, as in `| head`, ends it quietly."""
    _open_closed_streams()
    try:
        _run()
    except SystemExit as ending:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _leave_without_reader()
        except OSError as error:
            # Keep an exit code that already reports a problem.
            _leave_unwritten(error, ending.code)
        raise


def _open_closed_streams() -> None:
    """Open closed standard streams, as after `>&-`, so that output to them is dropped.

    Otherwise the next file opened would get the closed stream's descriptor, and its output.
    Children still find the stream closed, since they do not inherit these descriptors.
    """
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115


def _has_no_reader(stream: TextIO) -> bool:
    try:
        poll = select.poll()
        poll.register(stream.fileno(), select.POLLOUT)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    except (OSError, ValueError):
        return False


def _leave_without_reader() -> NoReturn:
    _drop_output()
    sys.exit(_NO_READER)


def _leave_unwritten(error: OSError, code: str | int | None = None) -> NoReturn:
    _drop_output()
    click.echo(f"inductoscope: the output cannot be written: {error.strerror}", err=True)
    sys.exit(code or ToolFailure.exit_code)


def _drop_output() -> None:
    """Discard buffered output, which Python would otherwise complain about at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> NoReturn:
    """Run the command; turn errors raised on purpose into one line and an exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A character that the terminal cannot show is escaped instead of raising an error.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _cli.main(prog_name="inductoscope", standalone_mode=False)
    except InductoscopeError as error:
        click.echo(f"inductoscope: {visible(str(error))}", err=True)
        sys.exit(error.exit_code)
    except click.ClickException as error:
        _with_one_suggestion(error).show()
        sys.exit(error.exit_code)
    except OSError as error:
        if error.errno not in _NO_SPACE:
            raise
        _leave_unwritten(error)
    except (click.Abort, KeyboardInterrupt):
        click.echo("inductoscope: interrupted", err=True)
        sys.exit(_INTERRUPTED)
    sys.exit(code if isinstance(code, int) else 0)
