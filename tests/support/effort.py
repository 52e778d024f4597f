"""Number of examples: all in make test-all, a sample in make test and make test-quick."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

QUICK = os.environ.get("INDUCTOSCOPE_TEST_QUICK") == "1"
_SHARE = 8

Item = TypeVar("Item")


def examples(number: int) -> int:
    """The number of examples to make where make test-all makes `number`."""
    return max(number // _SHARE, 1) if QUICK else number


def some_of(items: Sequence[Item]) -> Sequence[Item]:
    """The first of them where make test-all takes all."""
    return items[:1] if QUICK else items
