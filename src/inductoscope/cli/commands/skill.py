"""`inductoscope skill`."""

from __future__ import annotations

import click


@click.command("skill")
@click.pass_context
def command(context: click.Context) -> None:
    """Print a skill that teaches an agent to use inductoscope.

    It says for every symptom which command to run, how to read its JSON, what to do next and what
    to report. Save it where your agent looks for skills.

    \b
    mkdir -p skills/inductoscope
    inductoscope skill > skills/inductoscope/SKILL.md
    """
    from inductoscope.agents.skill import skill
    from inductoscope.cli import all_commands

    click.echo(skill(all_commands(context)), nl=False)
