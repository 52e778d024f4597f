"""An axis: one thing that the compiler does and that can be left undone.

Whatever does it asks for a permit before every application, by name. Refusing all tells whether
the axis matters; allowing the first n (fuel) finds the one application that does.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Permit = Callable[[str], bool]
Switch = Callable[[Permit], contextlib.AbstractContextManager[Any]]


@dataclass(frozen=True)
class Axis:
    """Something the compiler does, how to stop it, and what it means if stopping it helps."""

    name: str
    # The stage to blame if the failure is gone without it.
    stage: str
    # What it is, as in 'The failure is gone without {title}'.
    title: str
    switch: Switch
    # How much is lost without it, for the order in which remedies are tried.
    loss: int
    # Settings of torch._inductor.config that switch it off altogether.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # A snippet that switches off one application by name; empty where settings are all there is.
    snippet: Callable[[str], str] | None = None


def setting_axis(
    name: str, stage: str, title: str, *, loss: int, settings: Mapping[str, Any]
) -> Axis:
    """An axis that is on or off as a whole, by settings of the compiler."""

    @contextlib.contextmanager
    def switch(permit: Permit) -> Iterator[None]:
        if permit(name):
            yield
            return
        with patched(settings):
            yield

    return Axis(name, stage, title, switch, loss, settings)


@contextlib.contextmanager
def patched(settings: Mapping[str, Any], module: str = "torch._inductor.config") -> Iterator[None]:
    """Settings that this torch has, changed for a while."""
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
    """A switch for what torch's own bisector can refuse, one application at a time."""

    @contextlib.contextmanager
    def switch(permit: Permit) -> Iterator[None]:
        from torch._inductor.compiler_bisector import CompilerBisector

        original = CompilerBisector.__dict__["disable_subsystem"]

        def disable_subsystem(
            cls: Any, backend: str, subsystem: str, debug_info: Callable[[], str] | None = None
        ) -> bool:
            if subsystem not in subsystems:
                return False
            return not permit(str(debug_info()) if debug_info is not None else subsystem)

        CompilerBisector.disable_subsystem = classmethod(disable_subsystem)
        try:
            yield
        finally:
            CompilerBisector.disable_subsystem = original

    return switch


@contextlib.contextmanager
def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    """A function of torch replaced for a while; `make` gets the original."""
    original = owner.__dict__[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


@dataclass
class Fuel:
    """Permits the first `amount` applications, and writes down the names of all."""

    amount: int
    names: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> bool:
        self.names.append(name)
        return len(self.names) <= self.amount
