"""All kinds of events, by their name in a stream."""

from __future__ import annotations

from types import ModuleType

from inductoscope.recording.events import autotuning, checking, code, compiling, graphs, process
from inductoscope.recording.events.base import Event

# In the order in which a run writes them, by and large.
MODULES = (process, compiling, graphs, code, autotuning, checking)


def _defined_in(module: ModuleType) -> list[type[Event]]:
    return [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Event) and "kind" in vars(value)
    ]


KINDS: dict[str, type[Event]] = {
    event.kind: event for module in MODULES for event in _defined_in(module)
}
