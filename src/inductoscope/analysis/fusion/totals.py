"""Sums over the ledger that count nothing twice.

Ten pairs may involve one buffer that one kernel reads: the read counts once, and so does the
write of a buffer that nothing else needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from inductoscope.analysis.fusion.reasons import Settings
from inductoscope.analysis.fusion.row import FUSED, LedgerRow, Outcome
from inductoscope.model.as_json import NOT_IN_JSON


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Rows between the same two kernels that one condition decided; the costliest represents
    them."""

    graph: str
    first: str
    second: str
    label: str
    pairs: int
    bytes: int | None
    at_most: bool
    device: str
    values: tuple[str, ...]
    row: LedgerRow = field(metadata=NOT_IN_JSON)
    rows: tuple[LedgerRow, ...] = field(metadata=NOT_IN_JSON)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """Rows that the same condition decided, with the texts of the costliest."""

    number: int
    outcome: Outcome
    condition: str
    # Pairs of scheduler nodes, and pairs of kernels.
    pairs: int
    places: int
    bytes: int | None
    reason: str
    torch: str
    what_to_change: str
    tries: tuple[Settings, ...]
    losses: tuple[Loss, ...]


def bytes_moved(rows: Iterable[LedgerRow]) -> int | None:
    """Bytes that would not be moved if all these pairs were fused; None if all are unknown."""
    reads: dict[tuple[str, str, str], int] = {}
    writes: dict[tuple[str, str], int] = {}
    for row in rows:
        for moved in row.moved:
            if moved.read_bytes is not None:
                # A kernel reads a buffer once; when fused, all nodes but the first get it free.
                reader = row.second if row.outcome == FUSED else row.groups[1]
                key = (row.graph, moved.buffer, reader)
                reads[key] = max(reads.get(key, 0), moved.read_bytes)
            if moved.written_bytes is not None:
                writes[row.graph, moved.buffer] = moved.written_bytes
    return sum(reads.values()) + sum(writes.values()) if reads else None


def losses(rows: Iterable[LedgerRow]) -> list[Loss]:
    """Rows grouped by their two kernels, the costliest first."""
    found = _grouped(rows, lambda row: (row.graph, *row.groups, row.outcome, row.condition))
    return sorted(map(_loss, found), key=lambda loss: -(loss.bytes or 0))


def _loss(rows: Sequence[LedgerRow]) -> Loss:
    row = max(rows, key=lambda row: row.bytes or 0)
    return Loss(
        graph=row.graph,
        first=row.first,
        second=row.second,
        label=row.label,
        pairs=len(rows),
        bytes=bytes_moved(rows),
        at_most=any(one.at_most for one in rows),
        device=row.device,
        values=row.values,
        row=row,
        rows=tuple(rows),
    )


def conditions(rows: Iterable[LedgerRow], outcome: Outcome) -> list[Condition]:
    """Rows of one outcome grouped by the deciding condition, the costliest first."""
    chosen = [row for row in rows if row.outcome == outcome]
    found = _grouped(chosen, lambda row: (row.condition,))
    summed = sorted(
        ((bytes_moved(group), group) for group in found), key=lambda item: -(item[0] or 0)
    )
    return [_condition(number, *item) for number, item in enumerate(summed, start=1)]


def _condition(number: int, moved: int | None, rows: Sequence[LedgerRow]) -> Condition:
    lost = losses(rows)
    row = lost[0].row
    return Condition(
        number=number,
        outcome=row.outcome,
        condition=row.condition,
        pairs=len(rows),
        places=len(lost),
        bytes=moved,
        reason=row.reason,
        torch=row.torch,
        what_to_change=row.what_to_change,
        tries=row.tries,
        losses=tuple(lost),
    )


def _grouped(
    rows: Iterable[LedgerRow], key: Callable[[LedgerRow], tuple[str, ...]]
) -> list[list[LedgerRow]]:
    found: dict[tuple[str, ...], list[LedgerRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())
