"""Results of checking one test or a whole suite, as plain data and as pytest shows them.

A worker of pytest-xdist sends a test's results with its report, so they can be read from JSON.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from inductoscope.recording.values import members
from inductoscope.views.plain_text import visible
from inductoscope.wording import count_of

# Verdicts on a call. Those of the first row are right, those of the second say nothing.
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
    """A call of a graph, and what came of comparing it with eager."""

    graph: str
    compile: str
    call: int
    verdict: str
    text: str
    with_gradients: bool = False

    @property
    def is_compared(self) -> bool:
        """Whether it was compared with eager, whatever came of it."""
        return self.verdict != NOT_CHECKED


@dataclass
class SuiteFinding:
    """Something that is wrong with what a test compiled, and how that is known."""

    verdict: str
    summary: str
    graph: str = ""
    compile: str = ""
    stage: str = ""
    # Empty if it may be any of `ops`, those of the kernel.
    op: str = ""
    ops: list[str] = field(default_factory=list)
    kernel: str = ""
    source: str = ""
    known_by: list[str] = field(default_factory=list)
    # More sentences, such as the other outputs that differ.
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
        """The fields that stay the same when the test is run again and finds it again."""
        return (self.verdict, self.summary)


@dataclass
class SuiteTest:
    """The graphs that one test compiled, and the results of checking them."""

    test: str
    graphs: list[SuiteGraphData] = field(default_factory=list)
    calls: list[CheckedCall] = field(default_factory=list)
    findings: list[SuiteFinding] = field(default_factory=list)
    # Why nothing was checked, where the test or its end forbids that.
    off: str = ""
    seconds: float = 0.0

    @property
    def says_something(self) -> bool:
        """Whether there is anything to hand over."""
        return bool(self.graphs or self.calls or self.findings)

    def after(self, earlier: SuiteTest) -> SuiteTest:
        """The same test, run again: everything that differs, and what does not once."""
        again = {finding.identity for finding in self.findings}
        return SuiteTest(
            test=self.test,
            graphs=list(dict.fromkeys([*earlier.graphs, *self.graphs])),
            calls=list(dict.fromkeys([*earlier.calls, *self.calls])),
            findings=[one for one in earlier.findings if one.identity not in again] + self.findings,
            off=self.off,
            seconds=round(earlier.seconds + self.seconds, 3),
        )

    def as_data(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def suite_test_from(data: dict[str, Any]) -> SuiteTest:
    """The same from what `as_data` returned."""
    return SuiteTest(
        test=data["test"],
        graphs=[SuiteGraphData(**item) for item in data["graphs"]],
        calls=[CheckedCall(**item) for item in data["calls"]],
        findings=[SuiteFinding(**item) for item in data["findings"]],
        off=data["off"],
        seconds=data["seconds"],
    )


# --- All tests of a suite together: graphs compiled, checked, and not checked and why -------------

_NEVER_CALLED = "not called in a test"


@dataclass(frozen=True)
class SuiteTotals:
    """Numbers over all tests."""

    tests: int
    graphs: int
    checked: int
    calls: int
    exact: int
    within_rounding: int
    unsteady: int
    findings: int
    seconds: float
    # Why graphs were not checked, with how many.
    not_checked: dict[str, int]


def totals_of(tests: Sequence[SuiteTest]) -> SuiteTotals:
    """Count everything."""
    compared = [call for test in tests for call in test.calls if call.is_compared]
    verdicts = Counter(call.verdict for call in compared)
    checked = {call.graph for call in compared}
    return SuiteTotals(
        tests=sum(bool(test.graphs or test.calls) for test in tests),
        graphs=len({graph.graph for test in tests for graph in test.graphs} | checked),
        checked=len(checked),
        calls=len(compared),
        exact=verdicts[RIGHT],
        within_rounding=verdicts[WITHIN_ROUNDING],
        unsteady=verdicts[UNSTEADY],
        findings=sum(len(test.findings) for test in tests),
        seconds=round(sum(test.seconds for test in tests), 2),
        not_checked=_not_checked(tests, checked),
    )


def _not_checked(tests: Sequence[SuiteTest], checked: set[str]) -> dict[str, int]:
    """One reason for each graph of which no call was compared: the last that is known."""
    reasons: dict[str, str] = {}
    for test in tests:
        for graph in test.graphs:
            named = f"compiled by backend {graph.backend}, not Inductor" if graph.backend else ""
            reasons.setdefault(graph.graph, named or test.off or _NEVER_CALLED)
        for call in test.calls:
            if call.verdict == NOT_CHECKED:
                reasons[call.graph] = call.text
    left = Counter(why for graph, why in reasons.items() if graph not in checked)
    return dict(left.most_common())


def sentences_about(totals: SuiteTotals) -> list[str]:
    """Lines for the end of pytest's output."""
    if not totals.graphs and not totals.findings:
        return ["no test compiled anything"]
    lines = [
        f"{count_of(totals.graphs, 'graph')} compiled in {count_of(totals.tests, 'test')}; "
        f"{totals.checked} checked against eager in {count_of(totals.calls, 'call')}"
        f"{_how_right(totals)} ({totals.seconds:.1f} s)"
    ]
    for why, number in totals.not_checked.items():
        lines.append(f"not checked: {count_of(number, 'graph')}, {why}")
    return lines


def _how_right(totals: SuiteTotals) -> str:
    parts = [
        f"{number} {word}"
        for number, word in (
            (totals.exact, "right"),
            (totals.within_rounding, "within rounding"),
            (totals.unsteady, "different in every run"),
            (totals.calls - totals.exact - totals.within_rounding - totals.unsteady, "wrong"),
        )
        if number
    ]
    return f": {', '.join(parts)}" if parts else ""


# --- What is found in a test, as pytest shows it in the test's report -----------------------------

_WIDTH = 14


def text_of_findings(findings: list[SuiteFinding]) -> str:
    """All findings of a test, one below the other."""
    return visible("\n\n".join("\n".join(_lines_of(finding)) for finding in findings))


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
    """Names from the doctor's verdict, in the order of its own report."""
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
