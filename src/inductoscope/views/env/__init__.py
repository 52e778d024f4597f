"""The machine, the installed torch, and whether everything inductoscope relies on exists."""

from __future__ import annotations

from inductoscope.views.env.collection import (
    Device,
    Environment,
    FlagCheck,
    NameCheck,
    Torch,
    collect_environment,
)
from inductoscope.views.env.flag import Flag, FlagKind, FlagPhase
from inductoscope.views.env.flags import FLAGS
from inductoscope.views.env.machine import Cache, Machine, Tool

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
