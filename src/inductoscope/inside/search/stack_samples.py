"""Finds the functions a thread spends its time in, by sampling its stack.

The samples form a tree of calls. Where most samples agree, the tree has one branch; the function
at which they diverge is the hot one, or calls the hot ones.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType

from inductoscope.torch_facts.frames import is_compilers, is_own, is_users, shorten

# Samples are frequent at first, to see short compiles, then rare, to keep long ones cheap.
_OFTEN, _RARELY, _AT_FIRST = 0.02, 0.05, 10.0
_DEEPEST = 400
# The share of samples that must contain a function for it to be reported.
_AGREE = 0.7


@dataclass
class StackSampler:
    """A sampler of the stack of one thread.

    A stack is written outermost first: 'function (file:line of its definition)'.
    """

    thread: int
    stage_of: Callable[[int], str]
    stacks: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _names: dict[CodeType, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        sampler = threading.Thread(target=self._run, daemon=True)
        sampler.start()
        try:
            yield
        finally:
            self._stop.set()
            sampler.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(_OFTEN if time.monotonic() - began < _AT_FIRST else _RARELY):
            frame = sys._current_frames().get(self.thread)
            if frame is not None:
                stage = self.stage_of(self.thread)
                self.stacks.setdefault(stage, []).append(self._stack(frame))

    def _stack(self, frame: FrameType | None) -> tuple[str, ...]:
        found: list[str] = []
        while frame is not None and len(found) < _DEEPEST:
            code = frame.f_code
            name = self._names.get(code)
            if name is None:
                name = self._names[code] = function_name(code)
            if name:
                found.append(name)
            frame = frame.f_back
        return tuple(reversed(found))


def function_name(code: CodeType) -> str:
    """Format a function as 'name (file:line)'; empty for one of this tool's own."""
    if is_own(code.co_filename):
        return ""
    # Only Python 3.11 and later have co_qualname.
    name = getattr(code, "co_qualname", code.co_name).replace("<locals>.", "")
    return f"{name} ({_place(code.co_filename)}:{code.co_firstlineno})"


def file_of(function: str) -> str:
    """Return the file in a name that `function_name` formatted."""
    return function.partition(" (")[2].rpartition(":")[0]


@dataclass(frozen=True)
class HotPath:
    """The functions on which most samples agree, innermost first, and their share of samples."""

    functions: tuple[str, ...] = ()
    share: float = 0.0
    samples: int = 0

    @property
    def function(self) -> str:
        """The function to report: the innermost of the compiler's or the program's own."""
        return next(filter(_is_telling, self.functions), next(iter(self.functions), ""))


def hot_path(stacks: Sequence[Sequence[str]]) -> HotPath:
    """Follow the samples from the outermost function inwards, while most of them agree."""
    inside = [tuple(stack) for stack in stacks]
    path: list[str] = []
    share = 0.0
    while inside:
        name = _next_inside(inside, _AGREE * len(stacks))
        if not name:
            break
        path.append(name)
        inside = [stack[stack.index(name) + 1 :] for stack in inside if name in stack]
        share = len(inside) / len(stacks)
    return HotPath(tuple(reversed(path)), share, len(stacks))


def _next_inside(stacks: Sequence[tuple[str, ...]], enough: float) -> str:
    """Return the outermost function that enough stacks share; empty if there is none.

    Most functions have one caller. A function with several alternating callers is found deeper.
    """
    for depth in (1, _DEEPEST):
        counts = Counter(name for stack in stacks for name in dict.fromkeys(stack[:depth]))
        named = [name for name, count in counts.items() if count >= enough]
        if named:
            break

    def mean_depth(name: str) -> float:
        return sum(stack.index(name) for stack in stacks if name in stack) / counts[name]

    return min(named, key=mean_depth, default="")


def _place(file: str) -> str:
    """Return a path relative to site-packages, or else an absolute path."""
    short = shorten(file)
    return short if short != file or file.startswith("<") else os.path.abspath(file)


def _is_telling(name: str) -> bool:
    file = file_of(name)
    return is_compilers(file) or (os.path.isabs(file) and is_users(file))
