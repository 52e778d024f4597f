"""GPU targets to compile for, and published device properties per architecture."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.errors import UsageError

_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Architecture:
    """The device properties that torch reads, under torch's names."""

    name: str
    major: int
    minor: int
    multi_processor_count: int
    total_memory: int
    shared_memory_per_block: int
    shared_memory_per_block_optin: int
    shared_memory_per_multiprocessor: int
    L2_cache_size: int
    clock_rate: int  # kHz
    memory_clock_rate: int  # kHz
    memory_bus_width: int  # bits
    warp_size: int = 32
    gcnArchName: str = ""
    regs_per_multiprocessor: int = 65536
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    uuid: str = "none"

    @property
    def capability(self) -> tuple[int, int]:
        return self.major, self.minor


def _nvidia(name: str, major: int, processors: int, **figures: Any) -> Architecture:
    optin = figures.pop("shared") * _KIB
    return Architecture(
        name=f"{name} (not there)",
        major=major,
        minor=0,
        multi_processor_count=processors,
        shared_memory_per_block=48 * _KIB,
        shared_memory_per_block_optin=optin,
        # The system reserves one KiB per block.
        shared_memory_per_multiprocessor=optin + _KIB,
        **figures,
    )


def _amd(name: str, gfx: str, minor: int, processors: int, **figures: Any) -> Architecture:
    return Architecture(
        name=f"{name} (not there)",
        major=9,
        minor=minor,
        multi_processor_count=processors,
        shared_memory_per_block=64 * _KIB,
        shared_memory_per_block_optin=64 * _KIB,
        shared_memory_per_multiprocessor=64 * _KIB,
        warp_size=64,
        gcnArchName=f"{gfx}:sramecc+:xnack-",
        **figures,
    )


ARCHITECTURES: dict[str, Architecture] = {
    "cuda:80": _nvidia(
        "NVIDIA A100-SXM4-80GB", 8, 108, shared=163, total_memory=80 * _GIB,
        L2_cache_size=40 * _MIB, clock_rate=1_410_000, memory_clock_rate=1_593_000,
        memory_bus_width=5120,
    ),
    "cuda:90": _nvidia(
        "NVIDIA H100 80GB HBM3", 9, 132, shared=227, total_memory=80 * _GIB,
        L2_cache_size=50 * _MIB, clock_rate=1_980_000, memory_clock_rate=2_619_000,
        memory_bus_width=5120,
    ),
    "cuda:100": _nvidia(
        "NVIDIA B200", 10, 148, shared=227, total_memory=180 * _GIB,
        L2_cache_size=126 * _MIB, clock_rate=1_965_000, memory_clock_rate=3_996_000,
        memory_bus_width=8192,
    ),
    "hip:gfx90a": _amd(
        "AMD Instinct MI250X", "gfx90a", 0, 110, total_memory=64 * _GIB,
        L2_cache_size=8 * _MIB, clock_rate=1_700_000, memory_clock_rate=1_600_000,
        memory_bus_width=4096,
    ),
    "hip:gfx942": _amd(
        "AMD Instinct MI300X", "gfx942", 4, 304, total_memory=192 * _GIB,
        L2_cache_size=4 * _MIB, clock_rate=2_100_000, memory_clock_rate=1_300_000,
        memory_bus_width=8192,
    ),
}  # fmt: skip

TARGET_HELP = ", ".join(ARCHITECTURES)


def read_target(text: str) -> Target:
    """Parse a target given by the user; UsageError, listing the known ones, if unknown."""
    target = parse_target(text)
    architecture(target)
    return target


def architecture(target: Target) -> Architecture:
    found = ARCHITECTURES.get(str(target))
    if found is None:
        raise UsageError(f"Unknown target {target}. Known targets: {TARGET_HELP}.")
    return found


# --- The device that a kernel is compiled for. It need not be present -----------------------------

_EXAMPLES = "cuda:80, cuda:90, cuda:100, hip:gfx90a or hip:gfx942"


@dataclass(frozen=True)
class Target:
    """A kind of device and its architecture, as Triton's GPUTarget takes them."""

    kind: str
    architecture: int | str
    warp_size: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.architecture}"

    @property
    def code(self) -> str:
        """The GPUTarget as Python source."""
        return f'GPUTarget("{self.kind}", {self.architecture!r}, {self.warp_size})'


def parse_target(text: str) -> Target:
    """Parse `cuda:90` or `hip:gfx942`."""
    match = re.fullmatch(r"cuda:(?:sm_?)?(\d{2,3})a?|hip:(gfx[0-9a-f]{3,5})|xpu(?::(\w+))?", text)
    if match is None:
        raise UsageError(f"{text} is not a target. Use {_EXAMPLES}.")
    if text.startswith("cuda"):
        return Target("cuda", int(match[1]), 32)
    if text.startswith("hip"):
        # A wavefront has 64 lanes on CDNA (gfx9), 32 on RDNA.
        return Target("hip", match[2], 64 if match[2].startswith("gfx9") else 32)
    return Target("xpu", match[3] or "", 32)


def target_of_device(device: Mapping[str, Any]) -> Target | None:
    """Return the target named by `DeviceProperties(type='cuda', cc=90, ...)`, if any."""
    kind, architecture = device.get("type"), device.get("cc")
    try:
        target = parse_target(f"{kind}:{str(architecture).partition(':')[0]}")
    except UsageError:
        return None
    warp_size = device.get("warp_size")
    if isinstance(warp_size, int) and warp_size in (16, 32, 64):
        return Target(target.kind, target.architecture, warp_size)
    return target


def has_triton() -> bool:
    """Check whether Triton is installed, without importing anything."""
    return importlib.util.find_spec("triton") is not None
