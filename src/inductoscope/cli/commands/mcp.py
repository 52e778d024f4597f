"""`inductoscope mcp`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command("mcp")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    default=Path(),
    metavar="DIR",
    help="Work in this folder, unless a call names another.  [default: the current one]",
)
@click.pass_context
def command(context: click.Context, folder: Path) -> None:
    """Serve the commands and recordings to an agent (MCP).

    An agent starts this and talks to it over standard input and output; you need not. Each call
    runs a command in a child process and returns its JSON. A call that is cancelled ends with
    everything it started. Needs the mcp package: pip install 'mcp>=2'.

    \b
    inductoscope mcp
    inductoscope mcp --folder ~/model
    """
    from inductoscope.agents.command_tools import OFFERED, CommandTool
    from inductoscope.agents.skill import skill
    from inductoscope.cli import all_commands

    serve = _server()
    commands = all_commands(context)
    tools = [CommandTool(one, _inner(commands[one.words[0]], one.words[1:])) for one in OFFERED]
    serve(tools, folder=folder, skill=skill(commands))


def _inner(command: click.Command, words: tuple[str, ...]) -> click.Command:
    """Resolve a subcommand: `list` of `recordings`."""
    for word in words:
        assert isinstance(command, click.Group)
        command = command.commands[word]
    return command


def _server() -> Any:
    """Import the function that serves; ToolFailure if the mcp package is unusable."""
    from inductoscope.errors import ToolFailure

    try:
        from inductoscope.agents.server import serve
    except ImportError as error:
        raise ToolFailure(f"{_found()} Install it with: pip install 'mcp>=2'") from error
    return serve


def _found() -> str:
    """Describe the state of the mcp package: absent, or another version."""
    from importlib import metadata

    try:
        version = metadata.version("mcp")
    except metadata.PackageNotFoundError:
        return "inductoscope mcp needs the mcp package, which is not installed."
    return f"inductoscope mcp needs version 2 of the mcp package, and finds {version}."
