"""Time limits that pytest-timeout sets on tests: checking what they called does not count."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class _Limit:
    item: pytest.Item
    settings: Any
    began: float

    @property
    def left(self) -> float:
        return float(self.settings.timeout) - (time.monotonic() - self.began)


class TimeLimits:
    """Knows the limit that is in force, through the hooks that pytest-timeout offers for it."""

    def __init__(self) -> None:
        self._limit: _Limit | None = None

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_set_timer(
        self, item: pytest.Item, settings: Any
    ) -> Generator[None, Any, Any]:
        """A limit begins."""
        self._limit = _Limit(item, settings, time.monotonic())
        return (yield)

    @pytest.hookimpl(wrapper=True, optionalhook=True)
    def pytest_timeout_cancel_timer(self) -> Generator[None, Any, Any]:
        """It is over."""
        self._limit = None
        return (yield)

    @contextlib.contextmanager
    def paused(self, item: pytest.Item) -> Iterator[None]:
        """Stop the clock of the test; what is left of its time is for its fixtures."""
        limit = self._limit
        if limit is None or limit.item is not item:
            yield
            return
        left, hooks = limit.left, item.config.hook
        hooks.pytest_timeout_cancel_timer(item=item)
        try:
            yield
        finally:
            if left > 0:  # Else it has run out, once and for all.
                rest = limit.settings._replace(timeout=left)
                hooks.pytest_timeout_set_timer(item=item, settings=rest)
