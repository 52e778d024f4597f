"""Inside the program: compiled functions are called compiled and in eager, in turns.

What else a machine does can make a run several times slower than the next. Calls that follow each
other in one process fare alike, so every second call of a warm function is made uncompiled: the
program goes on with the same values, and each side has as many calls as the other.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.capture.install import Installer
from inductoscope.profiling.agent import Agent, start_agent
from inductoscope.profiling.call_clock import CallClock
from inductoscope.profiling.orders import orders_from
from inductoscope.profiling.timings import FUNCTION

# The kind of a call that was made uncompiled.
IN_EAGER = "function in eager"
AGENT = "profiling.advice.alternating"


def start(folder: str) -> Installer:
    """Time compiled calls and uncompiled ones in turns. Called on import of torch."""
    agent = Agent(orders_from(), Path(folder))
    agent.clock = AlternatingClock()
    return start_agent(agent)


class AlternatingClock(CallClock):
    """Times the outermost calls of functions, every second one in eager."""

    def timed(
        self, function: Callable[..., Any], name: str, kind: str = FUNCTION, place: str = ""
    ) -> Callable[..., Any]:
        """The function; graphs and packages are left alone."""
        if kind != FUNCTION:
            return function
        compiled = super().timed(function, name, kind, place)
        eager = super().timed(_in_eager(function), name, IN_EAGER, place)
        known = self._timed[kind, name, place]
        was_compiled = False

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal was_compiled
            if self._depth.value:
                return function(*args, **kwargs)
            was_compiled = not (was_compiled and known.is_warm)
            return (compiled if was_compiled else eager)(*args, **kwargs)

        return call


def _in_eager(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        torch: Any = sys.modules["torch"]
        with torch.compiler.set_stance("force_eager"):
            return function(*args, **kwargs)

    return call
