"""The fusion ledger: what was fused, what was refused and why, what was never tried."""

from __future__ import annotations

from inductoscope.analysis.fusion.ledger import LedgerRow, ledger, ledger_rows

__all__ = ["LedgerRow", "ledger", "ledger_rows"]
