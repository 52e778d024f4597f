"""`inductoscope explain`."""

from __future__ import annotations

import click

from inductoscope.cli.parameters import complete_from, json_option, pager_option, print_view


def _names() -> list[str]:
    from inductoscope.views.explain import topics

    return [topic.name for topic in topics()]


@click.command("explain")
@click.argument(
    "words", nargs=-1, metavar="[NAME | SYMPTOM...]", shell_complete=complete_from(_names)
)
@pager_option
@json_option("the text")
def command(words: tuple[str, ...], json_path: str | None) -> None:
    """Explain a stage, a finding, a verdict or a symptom.

    NAME is a stage, a finding, a verdict, a view or a kind of stall; without NAME, all are listed.
    Several words describe a symptom, and the answer is the stages that can cause it.

    \b
    inductoscope explain fusion
    inductoscope explain graph_breaks
    inductoscope explain wrong gradient
    """
    from inductoscope.views.report.explanation import explanation_view, print_explanation

    print_view(explanation_view(words), json_path, print_explanation)
