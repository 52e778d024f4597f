"""The cores that this process may use, which in a container or a job are fewer than there are."""

from __future__ import annotations

import os


def own_cores() -> set[int]:
    """Their numbers; never none."""
    try:
        return os.sched_getaffinity(0)
    except AttributeError:  # Not on every system.
        return set(range(os.cpu_count() or 1))
