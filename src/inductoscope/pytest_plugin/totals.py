"""All tests of a suite together: graphs compiled, checked, and not checked and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.pytest_plugin.results import (
    NOT_CHECKED,
    RIGHT,
    UNSTEADY,
    WITHIN_ROUNDING,
    SuiteTest,
)
from inductoscope.vocabulary.counting import count_of

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
    """What the end of pytest's output says."""
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
