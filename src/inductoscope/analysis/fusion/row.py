"""A row of the fusion ledger. `fusion --json` and the page use these fields as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from inductoscope.analysis.fusion.decisions import Consideration
from inductoscope.analysis.fusion.pairs import Moved
from inductoscope.analysis.fusion.reasons import Settings
from inductoscope.model.as_json import NOT_IN_JSON
from inductoscope.vocabulary.verdicts import Confidence

Outcome = Literal["fused", "refused", "never tried"]
FUSED: Outcome = "fused"
REFUSED: Outcome = "refused"
NEVER: Outcome = "never tried"

_ARROWS = {"producer-consumer": "->", "shared input": "&"}


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The outcome of a pair, and why."""

    outcome: Outcome
    kind: str = ""
    # torch's score of the fusion; None if it was not fused, or not recorded.
    score: float | None = None
    # In plain words; in torch's; how sure the plain words are.
    reason: str = ""
    torch: str = ""
    confidence: Confidence = "proven"
    what_to_change: str = ""
    # The condition that decided, in two or three words.
    condition: str = ""
    # What the decision depended on: index expressions, loops, limits, nodes in between.
    values: tuple[str, ...] = ()
    tries: tuple[Settings, ...] = field(default=(), metadata=NOT_IN_JSON)


@dataclass(frozen=True, kw_only=True)
class LedgerRow(Judgement):
    """One pair of scheduler nodes and its outcome."""

    graph: str
    first: str
    second: str
    first_operations: tuple[str, ...]
    second_operations: tuple[str, ...]
    relation: str
    # Bytes that are moved again because the two are not one kernel, or saved because they are.
    bytes: int | None
    # Whether `bytes` is an upper bound.
    at_most: bool
    # The time to move them at the device's memory bandwidth; None if that is unknown.
    microseconds: float | None
    # The fusion rounds that considered the pair.
    rounds: tuple[int, ...]
    buffers: tuple[str, ...]
    # The final group of each node, and the kernels that these became.
    groups: tuple[str, str]
    kernels: tuple[str, str]
    device: str = field(metadata=NOT_IN_JSON)
    moved: tuple[Moved, ...] = field(metadata=NOT_IN_JSON)
    considered: tuple[Consideration, ...] = field(metadata=NOT_IN_JSON)

    @property
    def label(self) -> str:
        """The pair in one line: 'op0 mul -> op1 sum_1'."""
        arrow = _ARROWS.get(self.relation, "|")
        first = _node_label(self.first, self.first_operations)
        return f"{first} {arrow} {_node_label(self.second, self.second_operations)}"


def _node_label(name: str, operations: Sequence[str]) -> str:
    """A node's name with its last operation, which names its result."""
    return f"{name} {operations[-1]}" if operations else name
