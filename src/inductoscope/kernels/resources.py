"""Registers, spills and memory of a compiled kernel, from what the compilers say of it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Resources:
    """What one kernel uses; None if unknown."""

    registers: int | None = None  # per thread; VGPRs on AMD
    scalar_registers: int | None = None  # AMD only
    spills: int | None = None  # bytes stored on NVIDIA, vector registers on AMD
    spill_unit: str = "bytes"
    shared: int | None = None  # bytes per block
    local: int | None = None  # bytes per thread: stack on NVIDIA, scratch on AMD


def nvidia_resources(ptxas_log: str, usage: str, shared: int | None) -> Resources:
    """From `ptxas -v` and `cuobjdump -res-usage`; either may be missing."""
    return Resources(
        registers=_first(r"Used (\d+) registers", ptxas_log) or _first(r"REG:(\d+)", usage),
        spills=_first(r"(\d+) bytes spill stores", ptxas_log),
        shared=shared,
        local=_first(r"STACK:(\d+)", usage),
    )


def amd_resources(amdgcn: str, shared: int | None) -> Resources:
    """From the notes at the end of the assembly text."""
    return Resources(
        registers=_first(r"\.vgpr_count:\s*(\d+)", amdgcn),
        scalar_registers=_first(r"\.sgpr_count:\s*(\d+)", amdgcn),
        spills=_first(r"\.vgpr_spill_count:\s*(\d+)", amdgcn),
        spill_unit="registers",
        shared=shared,
        local=_first(r"\.private_segment_fixed_size:\s*(\d+)", amdgcn),
    )


def _first(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found[1]) if found else None
