"""The machine, the installed torch, and whether everything inductoscope relies on exists."""

from __future__ import annotations

from inductoscope.views.env.collection import (
    Cache,
    Device,
    Environment,
    FlagCheck,
    Machine,
    NameCheck,
    Tool,
    Torch,
    collect_environment,
)
from inductoscope.views.env.flags import FLAGS, Flag, FlagKind, FlagPhase

__all__ = [
    "FLAGS",
    "Cache",
    "Device",
    "Environment",
    "Flag",
    "FlagCheck",
    "FlagKind",
    "FlagPhase",
    "Machine",
    "NameCheck",
    "Tool",
    "Torch",
    "collect_environment",
]
