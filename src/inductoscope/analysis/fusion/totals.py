"""Sums over the ledger in which nothing counts twice.

Ten pairs may go back to one buffer that one kernel reads: the read is counted once, and so is the
write of a buffer that nobody else needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from inductoscope.analysis.fusion.ledger import FUSED, LedgerRow


@dataclass(frozen=True)
class Loss:
    """Rows between the same two kernels that one condition decided about: the costliest stands
    for all."""

    row: LedgerRow
    rows: tuple[LedgerRow, ...]
    bytes: int | None


@dataclass(frozen=True)
class Condition:
    """Rows that the same condition decided about."""

    label: str
    losses: tuple[Loss, ...]
    bytes: int | None

    @property
    def row(self) -> LedgerRow:
        """The costliest."""
        return self.losses[0].row

    @property
    def pairs(self) -> int:
        """How many pairs of scheduler nodes."""
        return sum(len(loss.rows) for loss in self.losses)


def bytes_moved(rows: Iterable[LedgerRow]) -> int | None:
    """Bytes that would not be moved if all these pairs were fused; None where none is known."""
    reads: dict[tuple[str, str, str], int] = {}
    writes: dict[tuple[str, str], int] = {}
    for row in rows:
        for moved in row.moved:
            if moved.read is not None:
                # A kernel reads a buffer once; fused, every node but the first got it for free.
                reader = row.second if row.outcome == FUSED else row.groups[1]
                key = (row.graph, moved.buffer, reader)
                reads[key] = max(reads.get(key, 0), moved.read)
            if moved.written is not None:
                writes[row.graph, moved.buffer] = moved.written
    return sum(reads.values()) + sum(writes.values()) if reads else None


def losses(rows: Iterable[LedgerRow]) -> list[Loss]:
    """Rows between the same two kernels put together, the costliest first."""
    found = _grouped(rows, lambda row: (row.graph, *row.groups, row.outcome, row.label))
    result = [Loss(_costliest(group), tuple(group), bytes_moved(group)) for group in found]
    return sorted(result, key=lambda loss: -(loss.bytes or 0))


def conditions(rows: Iterable[LedgerRow]) -> list[Condition]:
    """Rows put together by what decided about them, the costliest first."""
    found = _grouped(rows, lambda row: (row.label,))
    result = [
        Condition(group[0].label, tuple(losses(group)), bytes_moved(group)) for group in found
    ]
    return sorted(result, key=lambda condition: -(condition.bytes or 0))


def _costliest(rows: Sequence[LedgerRow]) -> LedgerRow:
    return max(rows, key=lambda row: row.bytes or 0)


def _grouped(
    rows: Iterable[LedgerRow], key: Callable[[LedgerRow], tuple[str, ...]]
) -> list[list[LedgerRow]]:
    found: dict[tuple[str, ...], list[LedgerRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())
