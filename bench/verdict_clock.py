"""Watches the verdict that the doctor writes while it works: what was known when."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Verdict = dict[str, Any]
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Known:
    """A verdict, and the seconds after which it was on disk."""

    seconds: float
    verdict: Verdict


@dataclass
class VerdictClock:
    """As a context: collects every version of a file that is replaced now and then."""

    path: Path
    versions: list[Known] = field(default_factory=list)

    def __enter__(self) -> VerdictClock:
        # What an earlier run has left would count as known at once.
        self.path.unlink(missing_ok=True)
        self._started = time.monotonic()
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._watcher.join()
        # The last one, if nobody has looked since.
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(_LOOK_SECONDS):
            self._look()

    def _look(self) -> None:
        seconds = time.monotonic() - self._started
        try:
            verdict = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return
        if isinstance(verdict, dict) and (
            not self.versions or self.versions[-1].verdict != verdict
        ):
            self.versions.append(Known(seconds, verdict))


def first_for_good(versions: Sequence[Known], holds: Callable[[Verdict], bool]) -> float | None:
    """The seconds after which something was known and not taken back; None if it is not known."""
    since = None
    for known in versions:
        if not holds(known.verdict):
            since = None
        elif since is None:
            since = known.seconds
    return since


def names_culprit(verdict: Verdict) -> bool:
    """A stage, and something in it."""
    culprit = verdict.get("culprit") or {}
    return bool(verdict.get("stage")) and any(
        culprit.get(part) for part in ("op", "kernel", "pass", "function")
    )


def is_proven(verdict: Verdict) -> bool:
    """A small script failed as it should, in every run."""
    return (verdict.get("repro") or {}).get("verified") is True
