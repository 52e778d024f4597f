"""Names of signals, as they are shown."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """SIGSEGV and the like; a number where there is no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
