"""Compiled against eager and float64: what differs, and where it first does.

The package can be called: `inductoscope.check(function, *arguments)`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """`inductoscope.check` is this package, and what users call."""

    def __call__(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        from inductoscope.check.function import check

        return check(function, *arguments, **options)


sys.modules[__name__].__class__ = _Callable
