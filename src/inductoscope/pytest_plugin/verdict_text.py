"""What is found in a test, as pytest shows it in the test's report."""

from __future__ import annotations

import textwrap
from typing import Any

from inductoscope.pytest_plugin.results import RIGHT, WITHIN_ROUNDING, SuiteFinding, SuiteTest
from inductoscope.recording.values import members
from inductoscope.views.report.plain_text import visible
from inductoscope.vocabulary.counting import count_of

_WIDTH = 14


def text_of_findings(findings: list[SuiteFinding]) -> str:
    """All findings of a test, one below the other."""
    return visible("\n\n".join("\n".join(_lines_of(finding)) for finding in findings))


def headline_of(findings: list[SuiteFinding]) -> str:
    """One line for the test's own error."""
    first = findings[0]
    more = f" (and {count_of(len(findings) - 1, 'other finding')})" if len(findings) > 1 else ""
    return visible(f"inductoscope: {first.verdict}: {first.summary}{more}")


def _lines_of(finding: SuiteFinding) -> list[str]:
    lines = textwrap.wrap(f"{finding.verdict}: {finding.summary}", 98)
    for name, value in (
        ("stage", finding.stage),
        ("op", finding.op or _one_of(finding.ops)),
        ("kernel", finding.kernel),
        ("source", finding.source),
        ("confidence", finding.confidence),
    ):
        if value:
            lines.append(f"  {name.ljust(_WIDTH)}{value}")
    for name, texts in (("also", finding.details), ("known by", finding.known_by)):
        for text in texts:
            lines += _beside(name, text)
            name = ""
    if finding.recording:
        lines += [f"  {'recording'.ljust(_WIDTH)}{finding.recording}"]
    return [*lines, *_lines_of_doctor(finding)]


def _one_of(operations: list[str]) -> str:
    return f"one of {', '.join(operations)}" if operations else ""


def _beside(name: str, text: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split())[:900],
        98,
        initial_indent=f"  {name.ljust(_WIDTH)}",
        subsequent_indent=" " * (_WIDTH + 2),
        break_on_hyphens=False,
    )


def _lines_of_doctor(finding: SuiteFinding) -> list[str]:
    if finding.doctor is None:
        why = [f"  no verdict of the doctor: {finding.no_doctor}"] if finding.no_doctor else []
        if not finding.command:
            return why
        return [*why, "  For the cause, a reproducer and a workaround:", f"    {finding.command}"]
    said = finding.doctor
    lines = ["  The doctor's verdict"]
    lines += textwrap.wrap(
        f"{said.get('verdict')}: {said.get('summary')}",
        98,
        initial_indent="    ",
        subsequent_indent="    ",
    )
    for name, value in _facts_of(said):
        lines.append(f"    {name.ljust(_WIDTH)}{value}")
    return lines


def _facts_of(said: dict[str, Any]) -> list[tuple[str, str]]:
    """What the doctor named, in the order of its own report."""
    culprit, repro = members(said.get("culprit")), members(said.get("repro"))
    workaround = members(said.get("workaround"))
    shown = [
        ("stage", said.get("stage")),
        ("op", culprit.get("op")),
        ("pass", culprit.get("pass")),
        ("kernel", culprit.get("kernel")),
        ("source", culprit.get("source")),
        ("confidence", said.get("confidence")),
        ("reproducer", repro.get("path")),
        ("workaround", workaround.get("text")),
        ("recording", said.get("recording")),
    ]
    return [(name, str(value)) for name, value in shown if value]


def text_when_right(test: SuiteTest) -> str:
    """For a test that fails although all its compiled code is right; empty if nothing is known."""
    compared = [call for call in test.calls if call.verdict in (RIGHT, WITHIN_ROUNDING)]
    if not compared or test.findings:
        return ""
    graphs = len({call.graph for call in compared})
    left = len({graph.graph for graph in test.graphs} - {call.graph for call in compared})
    more = f" {count_of(left, 'graph')} could not be checked." if left else ""
    return (
        f"The compiled code that this test called does what eager does: "
        f"{count_of(len(compared), 'call')} of {count_of(graphs, 'graph')} checked after the test."
        f"{more}"
    )
