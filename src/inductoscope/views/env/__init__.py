"""What the machine and the installed torch offer, and whether all that we rely on is there."""

from __future__ import annotations

from inductoscope.views.env.collection import (
    Device,
    Environment,
    FlagCheck,
    NameCheck,
    Torch,
    collect_environment,
)
from inductoscope.views.env.flag import Flag, Kind, Phase
from inductoscope.views.env.flags import FLAGS
from inductoscope.views.env.machine import Cache, Machine, Tool

__all__ = [
    "FLAGS",
    "Cache",
    "Device",
    "Environment",
    "Flag",
    "FlagCheck",
    "Kind",
    "Machine",
    "NameCheck",
    "Phase",
    "Tool",
    "Torch",
    "collect_environment",
]
