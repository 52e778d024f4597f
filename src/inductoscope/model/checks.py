"""What the doctor compared with eager inside the program."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """A call of a compiled graph that the doctor compared with eager."""

    compile: str
    call: int
    verdict: str
    text: str
    # Whether it was the same to the last bit; None where this was not looked at.
    is_exact: bool | None = None
    # Seconds of the call in eager and compiled, both on one thread; 0 where it was not timed.
    eager: float = 0.0
    compiled: float = 0.0


@dataclass(frozen=True)
class CallableCheck:
    """A call of a whole compiled function that the doctor compared with eager."""

    function: str
    call: int
    verdict: str
    text: str


@dataclass(frozen=True)
class NotedDifference:
    """A difference from eager that is not a failure: how a result lies in memory, mostly.

    `aspect` is `stride`, `sharing` or `value`, `where` an output of the compiled graph or a kernel.
    """

    compile: str
    aspect: str
    where: str
    text: str = ""
