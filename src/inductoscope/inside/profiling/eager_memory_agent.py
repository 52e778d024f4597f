"""The same program with its compiled functions called in eager, and its memory traced."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.inside.profiling.memory_agent import MemoryAgent
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.start import InsidePart
from inductoscope.profiling.orders import orders_from
from inductoscope.torch_facts.frames import is_users


def eager_memory_profiler(folder: Path) -> InsidePart:
    """Trace memory without compiling."""
    return EagerMemoryAgent(orders_from(), folder).part()


class EagerMemoryAgent(MemoryAgent):
    """Calls compiled functions in eager, and notes which line of the user's made each tensor."""

    waits_for_graph = False

    def calls(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """How a compiled function is called: in eager."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            torch: Any = sys.modules["torch"]
            with torch.compiler.set_stance("force_eager"):
                if not self.tracer.is_open:
                    return function(*args, **kwargs)
                with _noting_mode(self.tracer.operation_made):
                    return function(*args, **kwargs)

        return call


def _noting_mode(note: Callable[[str, str, Any], None]) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class NotingMode(TorchDispatchMode):  # type: ignore[misc]
        """Says of every operation what it made, and where in the program it was called."""

        def __torch_dispatch__(
            self, function: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = function(*args, **(kwargs or {}))
            SCOPE.guard(note, str(function), _users_line(), result)
            return result

    return NotingMode()


def _users_line() -> str:
    """The innermost line of the program that is outside of torch and of this tool."""
    frame = sys._getframe(1)
    while frame is not None:
        if is_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return ""
