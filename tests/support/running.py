"""Whether processes that a test knows by number still run."""

from __future__ import annotations

from pathlib import Path


def is_running(pid: int) -> bool:
    """Not a zombie, which only waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
