"""The difference between two recordings, as dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal

Status = Literal["same", "renamed", "different", "not compared"]


@dataclass(frozen=True)
class StageComparison:
    """A stage of a graph in both runs. `why` says what kept it from being compared."""

    stage: str
    status: Status
    detail: str = ""
    why: str = ""
    diff: str = ""


@dataclass(frozen=True)
class PassCount:
    """The number of times that a pass changed the graph in each run."""

    stage: str
    name: str
    first: int
    second: int


@dataclass(frozen=True)
class FusionChange:
    """Operations that one run fused into one loop and the other did not."""

    what: Literal["lost", "gained"]
    operations: tuple[str, ...]
    others: tuple[str, ...]
    nodes: tuple[str, ...]
    other_nodes: tuple[str, ...]
    # The reason in the run that did not fuse.
    reason: str
    # Whether torch gave the reason itself.
    in_torchs_words: bool
    # 'proven' if both runs scheduled the same nodes, 'likely' if nodes were matched by operations.
    confidence: str


@dataclass(frozen=True)
class KernelChange:
    """A kernel that only one run has, or whose code differs."""

    what: Literal["added", "removed", "changed"]
    name: str
    language: str
    operations: tuple[str, ...]
    # The kernel's name in the other run, or the kernels there that contain its nodes.
    others: tuple[str, ...] = ()
    diff: str = ""


@dataclass(frozen=True)
class GraphDifference:
    function: str
    place: str
    # Keys of the graph ('0/0 forward') in each run; a run that has none leaves its own empty.
    first: str
    second: str
    stages: tuple[StageComparison, ...]
    passes: tuple[PassCount, ...] = ()
    fusions: tuple[FusionChange, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    seconds: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def first_different(self) -> StageComparison | None:
        return next((stage for stage in self.stages if stage.status == "different"), None)

    @property
    def differs(self) -> bool:
        """Whether anything in the graph differs."""
        return bool(self.first_different or self.passes or self.fusions or self.kernels)

    @property
    def label(self) -> str:
        place = f" ({PurePosixPath(self.place).name})" if self.place else ""
        phase = (self.first or self.second).partition(" ")[2]
        return f"{self.function or 'a frame'}{place}" + (f", {phase}" if phase else "")


@dataclass(frozen=True)
class OnlyIn:
    run: Literal["first", "second"]
    compile: str
    function: str
    place: str
    outcome: str


@dataclass(frozen=True)
class Fact:
    """A property of the run itself that differs: a version, a setting, a target."""

    name: str
    first: str
    second: str


@dataclass(frozen=True)
class Difference:
    first: str
    second: str
    surroundings: tuple[Fact, ...]
    # Compiler settings in which the runs differ.
    settings: tuple[Fact, ...]
    graphs: tuple[GraphDifference, ...]
    only: tuple[OnlyIn, ...]
    outcomes: tuple[Fact, ...]
    # Compile seconds per stage in each run.
    seconds: Mapping[str, tuple[float, float]]
    notes: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether compiler output differs; versions and timings alone do not count."""
        return bool(self.only or self.outcomes or any(graph.differs for graph in self.graphs))
