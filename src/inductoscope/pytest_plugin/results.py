"""What came of checking one test: graphs, calls and findings, as plain data.

A worker of pytest-xdist sends it with the test's report, so it can be made from JSON again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

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
        """What is the same if the test is run again, and finds it again."""
        return (self.verdict, self.summary)


@dataclass
class SuiteTest:
    """What one test compiled, and what came of checking it."""

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
