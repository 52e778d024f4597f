"""What a refusal costs: bytes as time on a device, from its published memory bandwidth.

Never measured: `bytes / bandwidth` is the least time that moving the data can take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from inductoscope.model.entities import InductorGraph, Recording
from inductoscope.model.target import recording_target
from inductoscope.recording.values import members

ESTABLISHED = "bytes / bandwidth, not measured"


@dataclass(frozen=True)
class Bandwidth:
    """Gigabytes (10^9) per second between a device and its memory, and the source."""

    gigabytes: float
    source: str

    def microseconds(self, count: int | None) -> float | None:
        """Time to move this many bytes."""
        return None if count is None else round(count / (self.gigabytes * 1000), 3)


@dataclass(frozen=True)
class Published:
    """A device, found by its name (a pattern) or by the target that stands for it."""

    pattern: str
    gigabytes: float
    source: str
    target: str = ""


# The first match counts, so variants come before the plain name.
BANDWIDTHS: tuple[Published, ...] = (
    Published(r"\bB200\b", 8000, "NVIDIA HGX B200 data sheet", "cuda:100"),
    Published(r"\bH200\b", 4800, "NVIDIA H200 data sheet"),
    Published(r"\bH100 NVL\b", 3900, "NVIDIA H100 data sheet (NVL)"),
    Published(r"\bH100 PCIe\b", 2000, "NVIDIA H100 data sheet (PCIe)"),
    Published(r"\bH100\b", 3350, "NVIDIA H100 data sheet (SXM)", "cuda:90"),
    Published(r"\bA100.SXM4.40GB\b", 1555, "NVIDIA A100 data sheet (40 GB)"),
    Published(r"\bA100.*PCIe?\b", 1935, "NVIDIA A100 data sheet (80 GB PCIe)"),
    Published(r"\bA100\b", 2039, "NVIDIA A100 data sheet (80 GB SXM)", "cuda:80"),
    Published(r"\bV100\b", 900, "NVIDIA V100 data sheet (SXM2)"),
    Published(r"\bL40S\b", 864, "NVIDIA L40S data sheet"),
    Published(r"\bL4\b", 300, "NVIDIA L4 data sheet"),
    Published(r"\bT4\b", 320, "NVIDIA T4 data sheet"),
    Published(r"\bA10G?\b", 600, "NVIDIA A10 data sheet"),
    Published(r"\bRTX 4090\b", 1008, "NVIDIA GeForce RTX 4090 specification"),
    Published(r"\bRTX 3090\b", 936, "NVIDIA GeForce RTX 3090 specification"),
    Published(r"\bMI300X\b", 5300, "AMD Instinct MI300X data sheet", "hip:gfx942"),
    Published(r"\bMI2[15]0X?\b", 1638, "AMD Instinct MI250X data sheet, one die", "hip:gfx90a"),
)


def bandwidth_for(
    recording: Recording, device: str, *, given: float | None = None
) -> Bandwidth | None:
    """The bandwidth of a device in a recording; None if unknown."""
    if given is not None:
        return Bandwidth(given, "given with --bandwidth")
    if device.startswith("cpu"):
        return None
    target = recording_target(recording)
    name = device_names(recording).get(device, "")
    for published in BANDWIDTHS:
        if (target and published.target == target) or (
            name and not target and re.search(published.pattern, name)
        ):
            return Bandwidth(published.gigabytes, published.source)
    return None


def device_names(recording: Recording) -> dict[str, str]:
    """The names of the devices, as far as recorded."""
    found: dict[str, str] = {}
    for graph in recording.graphs:
        found.update(_named(graph))
    return found


def _named(graph: InductorGraph) -> Mapping[str, str]:
    return {
        str(device): str(name)
        for round_ in graph.rounds
        for device, name in members(round_.settings.get("devices")).items()
    }
