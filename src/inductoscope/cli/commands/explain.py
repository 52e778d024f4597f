"""`inductoscope explain`."""

from __future__ import annotations

import click


@click.command("explain")
@click.argument("words", nargs=-1, metavar="[NAME | SYMPTOM...]")
@click.option("--json", "json_path", metavar="PATH", help="Write the text as JSON ('-': stdout).")
def command(words: tuple[str, ...], json_path: str | None) -> None:
    """Explain a stage, a finding, a verdict, a stall or a view.

    NAME is a word that inductoscope uses; without one, all are listed. Several words are a symptom:
    the stages are named where it lives.

    \b
    inductoscope explain fusion
    inductoscope explain graph_breaks
    inductoscope explain wrong gradient
    """
    from inductoscope.views.report.explanation import explanation_view, print_explanation
    from inductoscope.views.report.terminal import Printer, write_json

    view = explanation_view(words)
    if json_path:
        write_json(view, json_path)
    if json_path != "-":
        print_explanation(Printer(), view)
