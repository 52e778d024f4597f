"""The results of checking one test or a whole suite, as plain data and in pytest's output.

A pytest-xdist worker sends a test's results with its report, so they can be rebuilt from JSON.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from inductoscope.recording.values import members
from inductoscope.views.plain_text import visible
from inductoscope.wording import count_of

# Verdicts on a call: right ones in the first row, inconclusive ones in the second.
RIGHT, WITHIN_ROUNDING = "right", "within-rounding"
UNSTEADY, NOT_CHECKED = "unsteady", "not-checked"
WRONG, ERROR = "wrong", "error"


@dataclass(frozen=True)
class SuiteGraphData:
    """A graph that was compiled in a test. `backend` is empty if Inductor compiled it."""

    graph: str
    compile: str
    source: str = ""
    backend: str = ""


@dataclass(frozen=True)
class CheckedCall:
    graph: str
    compile: str
    call: int
    verdict: str
    text: str
    with_gradients: bool = False


@dataclass
class SuiteFinding:
    """A problem with code compiled in a test, and the evidence for it."""

    verdict: str
    summary: str
    graph: str = ""
    compile: str = ""
    stage: str = ""
    # The culprit operation; empty if it may be any of the kernel's `ops`.
    op: str = ""
    ops: list[str] = field(default_factory=list)
    kernel: str = ""
    source: str = ""
    known_by: list[str] = field(default_factory=list)
    # Further sentences, such as the other outputs that differ.
    details: list[str] = field(default_factory=list)
    confidence: str = "proven"
    recording: str = ""
    # The command that finds the cause.
    command: str = ""
    # What that command said, if it was run: the verdict object, or why there is none.
    doctor: dict[str, Any] | None = None
    no_doctor: str = ""

    @property
    def identity(self) -> tuple[str, str]:
        """The fields that identify a finding across reruns of its test."""
        return (self.verdict, self.summary)


@dataclass
class SuiteTest:
    """The graphs that one test compiled, with the checked calls and findings."""

    test: str
    graphs: list[SuiteGraphData] = field(default_factory=list)
    calls: list[CheckedCall] = field(default_factory=list)
    findings: list[SuiteFinding] = field(default_factory=list)
    # Why nothing was checked, where the test or its end forbids that.
    off: str = ""
    seconds: float = 0.0

    def after(self, earlier: SuiteTest) -> SuiteTest:
        """Merge a rerun of the test with its earlier run, without duplicates."""
        again = {finding.identity for finding in self.findings}
        return SuiteTest(
            test=self.test,
            graphs=list(dict.fromkeys([*earlier.graphs, *self.graphs])),
            calls=list(dict.fromkeys([*earlier.calls, *self.calls])),
            findings=[one for one in earlier.findings if one.identity not in again] + self.findings,
            off=self.off,
            seconds=round(earlier.seconds + self.seconds, 3),
        )


def suite_test_from(data: dict[str, Any]) -> SuiteTest:
    lists = {
        "graphs": [SuiteGraphData(**item) for item in data["graphs"]],
        "calls": [CheckedCall(**item) for item in data["calls"]],
        "findings": [SuiteFinding(**item) for item in data["findings"]],
    }
    return SuiteTest(**{**data, **lists})


# --- All tests of a suite together: graphs compiled, checked, and not checked and why -------------


def totals_of(tests: Sequence[SuiteTest]) -> dict[str, Any]:
    compared = [call for test in tests for call in test.calls if call.verdict != NOT_CHECKED]
    verdicts = Counter(call.verdict for call in compared)
    checked = {call.graph for call in compared}
    return {
        "tests": sum(bool(test.graphs or test.calls) for test in tests),
        "graphs": len({graph.graph for test in tests for graph in test.graphs} | checked),
        "checked": len(checked),
        "calls": len(compared),
        "exact": verdicts[RIGHT],
        "within_rounding": verdicts[WITHIN_ROUNDING],
        "unsteady": verdicts[UNSTEADY],
        "findings": sum(len(test.findings) for test in tests),
        "seconds": round(sum(test.seconds for test in tests), 2),
        "not_checked": _not_checked(tests, checked),
    }


def _not_checked(tests: Sequence[SuiteTest], checked: set[str]) -> dict[str, int]:
    """Count unchecked graphs by reason; the last known reason of each graph counts."""
    reasons: dict[str, str] = {}
    for test in tests:
        for graph in test.graphs:
            named = f"compiled by backend {graph.backend}, not Inductor" if graph.backend else ""
            reasons.setdefault(graph.graph, named or test.off or "not called in a test")
        for call in test.calls:
            if call.verdict == NOT_CHECKED:
                reasons[call.graph] = call.text
    left = Counter(why for graph, why in reasons.items() if graph not in checked)
    return dict(left.most_common())


def sentences_about(totals: dict[str, Any]) -> list[str]:
    if not totals["graphs"] and not totals["findings"]:
        return ["no test compiled anything"]
    named = {
        "right": totals["exact"],
        "within rounding": totals["within_rounding"],
        "different in every run": totals["unsteady"],
    }
    named["wrong"] = totals["calls"] - sum(named.values())
    parts = ", ".join(f"{number} {word}" for word, number in named.items() if number)
    lines = [
        f"{count_of(totals['graphs'], 'graph')} compiled in {count_of(totals['tests'], 'test')}; "
        f"{totals['checked']} checked against eager in {count_of(totals['calls'], 'call')}"
        f"{': ' if parts else ''}{parts} ({totals['seconds']:.1f} s)"
    ]
    for why, number in totals["not_checked"].items():
        lines.append(f"not checked: {count_of(number, 'graph')}, {why}")
    return lines


# --- What is found in a test, as pytest shows it in the test's report -----------------------------

_WIDTH = 14


def text_of_findings(findings: list[SuiteFinding]) -> str:
    return visible("\n\n".join("\n".join(_lines_of(finding)) for finding in findings))


def _lines_of(finding: SuiteFinding) -> list[str]:
    one_of = f"one of {', '.join(finding.ops)}" if finding.ops else ""
    lines = textwrap.wrap(f"{finding.verdict}: {finding.summary}", 98)
    lines += _beside(
        "  ",
        ("stage", finding.stage),
        ("op", finding.op or one_of),
        ("kernel", finding.kernel),
        ("source", finding.source),
        ("confidence", finding.confidence),
    )
    for name, texts in (("also", finding.details), ("known by", finding.known_by)):
        for text in texts:
            lines += textwrap.wrap(
                " ".join(text.split())[:900],
                98,
                initial_indent=f"  {name.ljust(_WIDTH)}",
                subsequent_indent=" " * (_WIDTH + 2),
                break_on_hyphens=False,
            )
            name = ""
    lines += _beside("  ", ("recording", finding.recording))
    if finding.doctor is not None:
        return [*lines, *_lines_of_doctor(finding.doctor)]
    if finding.no_doctor:
        lines.append(f"  no verdict of the doctor: {finding.no_doctor}")
    if finding.command:
        lines += ["  For the cause, a reproducer and a workaround:", f"    {finding.command}"]
    return lines


def _beside(indent: str, *facts: tuple[str, Any]) -> Iterable[str]:
    return [f"{indent}{name.ljust(_WIDTH)}{value}" for name, value in facts if value]


def _lines_of_doctor(said: dict[str, Any]) -> list[str]:
    """Format the doctor's verdict, in the order of its own report."""
    text = f"{said.get('verdict')}: {said.get('summary')}"
    culprit, repro = members(said.get("culprit")), members(said.get("repro"))
    return [
        "  The doctor's verdict",
        *textwrap.wrap(text, 98, initial_indent="    ", subsequent_indent="    "),
        *_beside(
            "    ",
            ("stage", said.get("stage")),
            ("op", culprit.get("op")),
            ("pass", culprit.get("pass")),
            ("kernel", culprit.get("kernel")),
            ("source", culprit.get("source")),
            ("confidence", said.get("confidence")),
            ("reproducer", repro.get("path")),
            ("workaround", members(said.get("workaround")).get("text")),
            ("recording", said.get("recording")),
        ),
    ]


def text_when_right(test: SuiteTest) -> str:
    """Format a note for a failed test whose compiled code is right; empty if unknown."""
    compared = [call for call in test.calls if call.verdict in (RIGHT, WITHIN_ROUNDING)]
    if not compared or test.findings:
        return ""
    graphs = {call.graph for call in compared}
    left = len({graph.graph for graph in test.graphs} - graphs)
    more = f" {count_of(left, 'graph')} could not be checked." if left else ""
    return (
        f"The compiled code that this test called does what eager does: "
        f"{count_of(len(compared), 'call')} of {count_of(len(graphs), 'graph')} checked after the "
        f"test.{more}"
    )
