"""Why a recorded graph cannot be built again."""

from __future__ import annotations


class Unbuildable(Exception):
    """A graph, or a part of one, that the recording does not hold enough of. Says why."""
