"""An axis: one thing the compiler does that can be switched off.

The code that does it asks for a permit before each application, by name. Refusing every permit
shows whether the axis matters; granting the first n (fuel) finds the one application that does.
An axis carries all that anyone asks about it: no other file names one.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from inductoscope.torch_facts import stages
from inductoscope.torch_facts.operator_names import with_usual_names

Permit = Callable[[str], bool]
Switch = Callable[[Permit], contextlib.AbstractContextManager[Any]]

# Stages that rewrite a graph, and stages that make a kernel of it.
_GRAPH_STAGES = (stages.DECOMPOSITION, *stages.PASSES)
_KERNEL_STAGES = (stages.LOWERING, stages.CODEGEN, stages.LOOP_BODY, stages.SCHEDULER)


@dataclass(frozen=True)
class Situation:
    """What is known about a failing candidate before any axis is tried on it."""

    devices: frozenset[str] = frozenset()
    # As torch writes them, such as 'torch.float16'.
    dtypes: frozenset[str] = frozenset()
    # Options of torch.compile and settings of the compiler.
    settings: Mapping[str, Any] = field(default_factory=dict)
    is_dynamic: bool = False
    # How the graph reaches Inductor, if not plainly through torch.compile.
    flow: str = ""
    # Where the failure was located; empty if that is not known.
    stage: str = ""
    kernel: str = ""

    @property
    def is_on_cpu(self) -> bool:
        """Whether every tensor is on the CPU."""
        return self.devices <= {"cpu"}


Condition = Callable[[Situation], bool]


def _always(situation: Situation) -> bool:
    return True


@dataclass(frozen=True)
class Axis:
    """Something the compiler does, how to stop it, and what it means if stopping it helps."""

    name: str
    # The stage to blame if the failure vanishes without it.
    stage: str
    # What it is, as in 'The failure vanishes without {title}'.
    title: str
    switch: Switch
    # How much is lost without it: workarounds that lose less are tried first.
    loss: int
    # How precisely it points at its stage, compared with other axes that rewrite graphs, or with
    # other axes that do not: the lowest rank is the most telling.
    rank: int
    # Whether it rewrites a graph. Where every graph is known to be right, it is not to blame.
    rewrites_graph: bool = False
    # When it can matter at all.
    applies: Condition = _always
    # Further stages in which it acts.
    also_acts_in: tuple[str, ...] = ()
    # Whether the name of an application is the name of a pass.
    names_passes: bool = False
    # Whether it is the name of an operation.
    names_operations: bool = False
    # Settings of torch._inductor.config that switch it off altogether.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # Code that switches off one application by name; None if only the settings do.
    snippet: Callable[[str], str] | None = None

    def __reduce__(self) -> tuple[Callable[[str], Axis], tuple[str]]:
        """Another process has the same axes: it needs the name alone."""
        return axis_named, (self.name,)

    def is_relevant(self, situation: Situation) -> bool:
        """Whether switching it off could tell anything about a failure in this situation."""
        return self.applies(situation) and self._can_cause(situation)

    def _can_cause(self, situation: Situation) -> bool:
        if situation.stage in _GRAPH_STAGES:
            return situation.stage in (self.stage, *self.also_acts_in)
        if situation.stage == stages.AOT:
            return False
        if situation.stage in (stages.LOWERING, stages.CODEGEN) or situation.kernel:
            return self.stage in _KERNEL_STAGES
        return True


def axis_named(name: str) -> Axis:
    """The axis of this name."""
    from inductoscope.inside.search.axes import AXES

    return next(axis for axis in AXES if axis.name == name)


def setting_axis(
    name: str,
    stage: str,
    title: str,
    *,
    loss: int,
    rank: int,
    settings: Mapping[str, Any],
    applies: Condition = _always,
) -> Axis:
    """An axis that settings of the compiler switch on or off as a whole."""

    @contextlib.contextmanager
    def switch(permit: Permit) -> Iterator[None]:
        if permit(name):
            yield
            return
        with patched(settings):
            yield

    return Axis(name, stage, title, switch, loss, rank, applies=applies, settings=settings)


@contextlib.contextmanager
def patched(settings: Mapping[str, Any], module: str = "torch._inductor.config") -> Iterator[None]:
    """Changes settings for a while; those that this torch does not have are skipped."""
    config: Any = importlib.import_module(module)
    known = {name: value for name, value in settings.items() if _exists(config, name)}
    with config.patch(known):
        yield


def _exists(config: Any, name: str) -> bool:
    for part in name.split("."):
        if not hasattr(config, part):
            return False
        config = getattr(config, part)
    return True


def subsystem_switch(*subsystems: str) -> Switch:
    """A switch for what torch's own bisector can disable, one application at a time."""

    @contextlib.contextmanager
    def switch(permit: Permit) -> Iterator[None]:
        from torch._inductor.compiler_bisector import CompilerBisector

        original = CompilerBisector.__dict__["disable_subsystem"]

        def disable_subsystem(
            cls: Any, backend: str, subsystem: str, debug_info: Callable[[], str] | None = None
        ) -> bool:
            if subsystem not in subsystems:
                return False
            name = subsystem if debug_info is None else with_usual_names(str(debug_info()))
            return not permit(name)

        CompilerBisector.disable_subsystem = classmethod(disable_subsystem)
        try:
            yield
        finally:
            CompilerBisector.disable_subsystem = original

    return switch


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """Replaces a function of torch for a while; `make` gets the original."""
    original = owner.__dict__[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@dataclass
class Fuel:
    """Permits the first `amount` applications and notes the names of all."""

    amount: int
    names: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> bool:
        self.names.append(name)
        return len(self.names) <= self.amount
