"""What the machine and the installed torch offer, and whether all that we rely on is there."""

from __future__ import annotations

from inductoscope.environment.collection import (
    Device,
    Environment,
    FlagCheck,
    NameCheck,
    Torch,
    collect_environment,
)
from inductoscope.environment.flag import Flag, Kind, Phase
from inductoscope.environment.flags import FLAGS
from inductoscope.environment.machine import Cache, Machine, Tool

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
