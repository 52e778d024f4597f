"""Why a recorded graph cannot be rebuilt."""

from __future__ import annotations


class Unbuildable(Exception):
    """A graph that cannot be rebuilt from the recording; the message says why."""
