"""What one rank decided while it compiled, in order; the same for every source of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from inductoscope.vocabulary import stages


class Weight(str, Enum):
    """What a difference in a decision can lead to."""

    # What was called tells more than what is in a graph: each is looked at on its own.
    CALLS = "calls"
    COLLECTIVES = "collectives"
    PROGRAM = "program"
    COST = "cost"


# Ranks that differ in these wait for each other.
DEADLY = (Weight.CALLS, Weight.COLLECTIVES)


class DecisionKind(NamedTuple):
    """A kind of decision: its weight, what it is called.

    `skipped_on_hit`: a compile that is in the cache on some ranks may have it there only.
    """

    weight: Weight
    words: str
    skipped_on_hit: bool = False


# In the words of the output. A new kind is one line here, and one in each source that knows it.
KINDS: dict[str, DecisionKind] = {
    "compile": DecisionKind(Weight.PROGRAM, "the function that is compiled"),
    "guard": DecisionKind(Weight.PROGRAM, "a guard that failed"),
    "graph": DecisionKind(Weight.PROGRAM, "the graph", skipped_on_hit=True),
    "partition": DecisionKind(
        Weight.PROGRAM, "what the forward pass saves for the backward pass", skipped_on_hit=True
    ),
    "collectives": DecisionKind(
        Weight.COLLECTIVES, "the order of collectives in the graph", skipped_on_hit=True
    ),
    "collective": DecisionKind(Weight.CALLS, "a collective that was called"),
    stages.GUARDS: DecisionKind(Weight.COST, "the guards of the compiled code"),
    "cache": DecisionKind(Weight.COST, "the cache look-up", skipped_on_hit=True),
    "cache key": DecisionKind(Weight.COST, "the key in the cache", skipped_on_hit=True),
    stages.AUTOTUNE: DecisionKind(Weight.COST, "the choices of autotuning", skipped_on_hit=True),
    "code": DecisionKind(Weight.COST, "the generated code", skipped_on_hit=True),
}


class RankProgress(str, Enum):
    """How far a rank has come, as far as its log tells."""

    ENDED = "ended"
    # Between compiles: what it has not decided, it has not decided so far.
    AT_REST = "at rest"
    # Inside a compile when its log ends.
    BUSY = "busy"


class Decision(NamedTuple):
    """One decision. `key` names it, and is the same on every rank that takes it.

    `value` is what is compared, often a digest; `shown` is for people. `among` are the ranks that
    take it, where not all do; `groups` are the process groups that collectives go to, and `orders`
    has for each of them a word for every collective, in order.
    """

    kind: str
    key: str
    value: str
    shown: str = ""
    compile: str = ""
    among: tuple[int, ...] = ()
    groups: tuple[str, ...] = ()
    orders: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The value, for people."""
        return self.shown or self.value


@dataclass(frozen=True)
class RankLog:
    """Everything that is compared of one rank."""

    rank: int
    decisions: tuple[Decision, ...] = ()
    # Seconds of each stage, measured by the rank's own clock.
    stage_seconds: tuple[tuple[str, float], ...] = ()
    progress: RankProgress = RankProgress.AT_REST
    # What it was read from: ranks are compared with ranks that were read from the same.
    form: str = "trace"
    files: tuple[str, ...] = ()
    began: str = ""
