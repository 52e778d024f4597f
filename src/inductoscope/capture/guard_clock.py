"""Times the guards of a frame right after they were built, with the values of that call.

torch measures the same, once and with cold caches; here the fastest of several evaluations counts,
which is what a loop that calls the frame again and again pays.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from inductoscope.capture.scope import BROKEN, SCOPE

_EVALUATIONS = 20
# Guards that take longer are not evaluated so often.
_LONGEST_NS = 2_000_000
# Below this nobody asks which of them take it.
_WORTH_A_LOOK = 20.0
# A value whose guards take less of the whole is not named.
_SHARE = 0.1
_MOST_VALUES = 20


def time_guards(built: Any, output: Any) -> tuple[float | None, tuple[tuple[str, float], ...]]:
    """Microseconds of one evaluation, and the values that take most; None if it cannot be said."""
    root = getattr(getattr(built, "guard_manager", None), "root", None)
    values = getattr(output, "local_scope", None)
    if root is None or not isinstance(values, dict) or not hasattr(root, "check"):
        return None, ()
    whole = SCOPE.attempt(_microseconds, root, values)
    if whole is BROKEN or whole is None:
        return None, ()
    if whole < _WORTH_A_LOOK:
        return whole, ()
    parts = SCOPE.attempt(list, _parts(root, values))
    costly = [] if parts is BROKEN else [part for part in parts if part[1] >= whole * _SHARE]
    return whole, tuple(sorted(costly, key=lambda part: -part[1]))


def _microseconds(root: Any, values: Any) -> float | None:
    best, begun = None, time.perf_counter_ns()
    for _ in range(_EVALUATIONS):
        started = time.perf_counter_ns()
        if not root.check(values):
            return None
        ended = time.perf_counter_ns()
        best = ended - started if best is None else min(best, ended - started)
        if ended - begun > _LONGEST_NS:
            break
    return None if best is None else round(best / 1e3, 2)


def _parts(root: Any, values: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Each value of the frame with the time of its guards alone."""
    for child in root.get_child_managers()[:_MOST_VALUES]:
        source = str(child.get_source())

        def is_of_value(manager: Any, source: str = source) -> bool:
            return manager is root or str(manager.get_source()).startswith(source)

        alone = SCOPE.attempt(root.clone_manager, is_of_value)
        took = SCOPE.attempt(_microseconds, alone, values) if alone is not BROKEN else None
        if took is not BROKEN and took is not None:
            yield source, took
