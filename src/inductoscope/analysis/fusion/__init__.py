"""The fusion ledger: what was fused, what was refused and why, what was never tried."""

from __future__ import annotations

from inductoscope.analysis.fusion.ledger import LedgerRow, ledger

__all__ = ["LedgerRow", "ledger"]
