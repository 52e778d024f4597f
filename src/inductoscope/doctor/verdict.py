"""The verdict object, the result of the doctor."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.doctor.failure import WrongValue
from inductoscope.doctor.finding import FailureFinding, Repro, StepTime, Workaround
from inductoscope.model.fault_trail import FaultTrail
from inductoscope.recording.codec import decode
from inductoscope.recording.events import NotedDifference
from inductoscope.recording.layout import VERDICT
from inductoscope.recording.values import members
from inductoscope.recording.verdict_file import stored_verdict
from inductoscope.verdicts import CLEAN, NOT_CHECKED, Confidence

SCHEMA = 1


@dataclass(frozen=True)
class Vote:
    """One piece of evidence for an operation."""

    operation: str
    weight: float
    why: str


@dataclass(frozen=True)
class Headline:
    """The operation to name, as torch writes it, and the evidence for it."""

    operation: str = ""
    # The operation of the program that it is a part of, if it has another name.
    part_of: str = ""
    votes: tuple[Vote, ...] = ()
    # Other operations with equally strong evidence.
    rivals: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The operation, and the one that it is a part of."""
        return [name for name in (self.operation, self.part_of) if name]


@dataclass
class Culprit:
    op: str | None = None
    pass_: str | None = None
    kernel: str | None = None
    function: str | None = None
    config: str | None = None
    source: str | None = None


@dataclass
class FailingGraph:
    """A failure as one graph shows it: the program's own graph, or the smallest that fails."""

    text: str
    nodes: int = 0
    # An element of each output that is wrong.
    values: list[WrongValue] = field(default_factory=list)
    # The kernel to blame, by its name in this graph.
    kernel: str | None = None
    # The compile of the program's graph, and the function that was compiled.
    compile: str = ""
    function: str = ""


@dataclass
class Verdict:
    """A verdict: the problem, its place, the evidence, and remedies."""

    verdict: str
    stage: str
    summary: str
    confidence: Confidence = "unknown"
    culprit: Culprit = field(default_factory=Culprit)
    evidence: list[dict[str, str]] = field(default_factory=list)
    # The failure as the program shows it, and as the smallest graph does. The culprit's kernel and
    # the values are the program's.
    program: FailingGraph | None = None
    reduction: FailingGraph | None = None
    # For a wrong result: an element of each output that is wrong.
    values: list[WrongValue] = field(default_factory=list)
    # Differences from eager that are not failures, such as other strides.
    notes: list[NotedDifference] = field(default_factory=list)
    # Gaps in the checks, if nothing was found.
    not_checked: list[str] = field(default_factory=list)
    repro: Repro | None = None
    workaround: Workaround | None = None
    issue: str | None = None
    # The trail from the fault back to the culprit kernel, in the recorded graph.
    trail: FaultTrail | None = None
    recording: str = ""
    # The file with the program's output; empty if that went to the terminal.
    output: str = ""
    seconds: float = 0.0
    partial: bool = False
    # The numbers of runs of the program, of candidates and of the reproducer.
    runs: int = 0
    # Seconds from the start until each answer was known: kind, place, graph, proof, workaround.
    known: dict[str, float] = field(default_factory=dict)
    # The time by process and step.
    time: list[StepTime] = field(default_factory=list)
    # The basis of the verdict, if a failure was found inside the program. Its texts come last:
    # see `views.verdict_text`. Not in the JSON.
    finding: FailureFinding | None = None
    headline: Headline = Headline()

    def add(self, what: str, where: str = "") -> Verdict:
        """Add a piece of evidence, unless it is empty."""
        if what:
            self.evidence.append({"what": what, "where": where})
        return self

    @property
    def is_problem(self) -> bool:
        """Whether there is, or may be, a problem."""
        return self.verdict not in (CLEAN, NOT_CHECKED)

    def as_data(self) -> dict[str, Any]:
        data = {"schema": SCHEMA, **asdict(replace(self, finding=None))}
        del data["finding"], data["headline"]
        data["culprit"]["pass"] = data["culprit"].pop("pass_")
        for note in data["notes"]:
            note.pop("call", None)  # A difference counts once, however often it occurs.
        return data


def exit_code(verdict: str) -> int:
    return {CLEAN: 0, NOT_CHECKED: 4}.get(verdict, 1)


def keep_verdict(verdict: Verdict, folder: Path) -> None:
    """Store the verdict in the recording, with the texts it refers to, for the page."""
    texts = {
        "repro_text": _text_of(verdict.repro.path if verdict.repro else None),
        "issue_text": _text_of(verdict.issue),
    }
    with contextlib.suppress(OSError):  # A full disk must not lose the verdict.
        (folder / VERDICT).write_text(json.dumps({**verdict.as_data(), **texts}), "utf-8")


def read_verdict(folder: Path) -> Verdict | None:
    """Read the verdict in the recording of an examination; None if there is none."""
    return verdict_of(stored_verdict(folder))


def verdict_of(data: Mapping[str, Any]) -> Verdict | None:
    """Decode a verdict from JSON data; None if it is not one."""
    culprit = members(data.get("culprit"))
    with contextlib.suppress(ValueError):
        return decode(Verdict, {**data, "culprit": {**culprit, "pass_": culprit.get("pass")}})
    return None


def _text_of(path: str | None) -> str:
    with contextlib.suppress(OSError):
        return Path(path).read_text("utf-8", "replace") if path else ""
    return ""
