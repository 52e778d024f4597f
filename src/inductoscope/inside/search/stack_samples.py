"""Which functions a thread spends its time in: its stack is looked at again and again.

The samples form a tree of calls. Where most of them agree, the tree has one branch; the function at
which they part is the one that the time is spent in, or that calls what it is spent in.
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

from inductoscope.torch_facts.frames import (
    is_compilers,
    is_own,
    is_users,
    shorten,
)

# Often at first, so that something short is seen; then rarely, so that something long costs little.
_OFTEN, _RARELY, _AT_FIRST = 0.02, 0.05, 10.0
_DEEPEST = 400
# So many samples must agree on a function for it to be named.
_AGREE = 0.7


@dataclass
class StackSampler:
    """Looks at the stack of one thread until it is stopped.

    A stack is written outermost first: 'function (file:line of its definition)'.
    """

    thread: int
    # The stage that a thread is in.
    stage_of: Callable[[int], str]
    # By stage.
    stacks: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _names: dict[CodeType, str] = field(default_factory=dict)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Take samples inside the block."""
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
    """How a function is shown; empty for one of the tool's own."""
    if is_own(code.co_filename):
        return ""
    # Not every supported Python knows the class of a method.
    name = getattr(code, "co_qualname", code.co_name).replace("<locals>.", "")
    return f"{name} ({_place(code.co_filename)}:{code.co_firstlineno})"


def file_of(function: str) -> str:
    """The file of a function that is shown so."""
    return function.partition(" (")[2].rpartition(":")[0]


@dataclass(frozen=True)
class HotPath:
    """The functions that most samples agree on, innermost first, and how many agree."""

    functions: tuple[str, ...] = ()
    share: float = 0.0
    samples: int = 0

    @property
    def function(self) -> str:
        """The one to name: the innermost of the compiler's or the program's own."""
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
    """The outermost function in which enough of the stacks are; empty if there is none.

    Most functions have one caller. One that several functions call in turns is found behind them.
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
    """A file of an installed package by its path from there, any other by its whole path."""
    short = shorten(file)
    return short if short != file or file.startswith("<") else os.path.abspath(file)


def _is_telling(name: str) -> bool:
    file = file_of(name)
    return is_compilers(file) or (os.path.isabs(file) and is_users(file))
