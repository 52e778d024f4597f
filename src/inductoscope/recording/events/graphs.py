"""Events about one graph: its states, its passes, lowering, scheduling and fusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.recording.events.base import Event


@dataclass(frozen=True, kw_only=True)
class GraphLeft(Event):
    """A stage leaves a graph behind.

    stage: dynamo, pre-grad, aot-joint, aot-inference, aot-forward, aot-backward, joint, post-grad.
    """

    kind = "graph"
    stage: str
    compile: str = ""
    graph: str = ""
    payload: str


@dataclass(frozen=True, kw_only=True)
class PassApplied(Event):
    """A pass changed the graph. before, after: payloads; inside: the passes around it."""

    kind = "pass"
    stage: str
    name: str
    before: str
    after: str
    seconds: float
    compile: str = ""
    graph: str = ""
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PassesTimed(Event):
    """A group of passes ends. passes: name, seconds, own (without inner passes), runs of each."""

    kind = "pass-times"
    stage: str
    compile: str = ""
    graph: str = ""
    passes: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class InductorStart(Event):
    """Inductor begins to compile a graph."""

    kind = "inductor-start"
    compile: str = ""
    graph: str
    phase: str
    cpp_wrapper: bool = False


@dataclass(frozen=True, kw_only=True)
class InductorEnd(Event):
    """Inductor has compiled a graph."""

    kind = "inductor-end"
    compile: str = ""
    graph: str = ""


@dataclass(frozen=True, kw_only=True)
class CudaGraphsSkipped(Event):
    """torch runs a graph without CUDA graphs that were asked for. reason: as torch logs it."""

    kind = "cudagraphs-skipped"
    compile: str = ""
    graph: str = ""
    reason: str


@dataclass(frozen=True, kw_only=True)
class GraphFromCache(Event):
    """Compiled code was taken from a cache. payload: the wrapper."""

    kind = "cached-graph"
    compile: str = ""
    graph: str
    phase: str
    payload: str = ""


@dataclass(frozen=True, kw_only=True)
class NodeLowered(Event):
    """An FX node was lowered. ir: what it became; made: operations added to the graph."""

    kind = "lowering"
    graph: str = ""
    node: str
    target: str
    ir: Any = None
    made: tuple[Mapping[str, Any], ...] = ()
    fallback: bool = False
    seconds: float


@dataclass(frozen=True, kw_only=True)
class NodesScheduled(Event):
    """The scheduler has listed its nodes. when: before or after fusion; payload: a JSON list."""

    kind = "scheduler"
    graph: str = ""
    when: str
    payload: str


@dataclass(frozen=True, kw_only=True)
class FusionRoundDone(Event):
    """A round of fusion ends. settings: those that decide about fusion, and the names of GPUs."""

    kind = "fusion-round"
    is_progress = False
    graph: str = ""
    round: int
    before: int
    after: int
    seconds: float
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PairConsidered(Event):
    """A pair was considered for fusion, in the first 64 rounds.

    step: attempt, if it was about to be fused; within: the pair that is decided by this part;
    shared: bytes in common; decided: what decided where torch gives no reason.
    """

    kind = "fusion-pair"
    is_progress = False
    graph: str = ""
    round: int
    step: str = ""
    first: str
    second: str
    within: tuple[str, ...] = ()
    type: str = ""
    possible: bool
    shared: int | None = None
    reasons: tuple[str, ...] = ()
    decided: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PairFused(Event):
    """Two scheduler nodes became one."""

    kind = "fused"
    is_progress = False
    graph: str = ""
    round: int
    first: str
    second: str
    result: str
    type: str
    score: Mapping[str, Any] = field(default_factory=dict)
    bytes_saved: int | None = None
