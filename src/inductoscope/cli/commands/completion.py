"""`inductoscope completion`."""

from __future__ import annotations

import click

from inductoscope.cli.parameters import WordChoice

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=WordChoice(_SHELLS))
@click.pass_context
def command(context: click.Context, *, shell: str) -> None:
    """Print the completion script for bash, zsh or fish.

    Completes commands, options, stages, GPUs and the names of your recordings. Add the line for
    your shell to its start-up file:

    \b
    bash   eval "$(inductoscope completion bash)"       # ~/.bashrc
    zsh    eval "$(inductoscope completion zsh)"        # ~/.zshrc
    fish   inductoscope completion fish | source        # config.fish
    """
    from click.shell_completion import get_completion_class

    root = context.find_root()
    found = get_completion_class(shell)
    assert found is not None, "click completes for these shells"
    script = found(root.command, {}, "inductoscope", "_INDUCTOSCOPE_COMPLETE")
    click.echo(script.source())
