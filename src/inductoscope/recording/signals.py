"""Names of signals, as they are shown."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """A name such as SIGSEGV, or the number if there is no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
