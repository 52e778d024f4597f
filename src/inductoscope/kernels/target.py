"""The device that a kernel is compiled for. It need not be present."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from inductoscope.errors import UsageError

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
        """The GPUTarget as Python text."""
        return f'GPUTarget("{self.kind}", {self.architecture!r}, {self.warp_size})'


def parse_target(text: str) -> Target:
    """`cuda:90` or `hip:gfx942`."""
    match = re.fullmatch(r"cuda:(?:sm_?)?(\d{2,3})a?|hip:(gfx[0-9a-f]{3,5})|xpu(?::(\w+))?", text)
    if match is None:
        raise UsageError(f"{text} is not a target. Use {_EXAMPLES}.")
    if text.startswith("cuda"):
        return Target("cuda", int(match[1]), 32)
    if text.startswith("hip"):
        # CDNA (gfx9) runs 64 lanes in step, RDNA 32.
        return Target("hip", match[2], 64 if match[2].startswith("gfx9") else 32)
    return Target("xpu", match[3] or "", 32)


def target_of_device(device: Mapping[str, Any]) -> Target | None:
    """The target that `DeviceProperties(type='cuda', cc=90, ...)` names, if it does."""
    kind, architecture = device.get("type"), device.get("cc")
    try:
        target = parse_target(f"{kind}:{str(architecture).partition(':')[0]}")
    except UsageError:
        return None
    warp_size = device.get("warp_size")
    if isinstance(warp_size, int) and warp_size in (16, 32, 64):
        return Target(target.kind, target.architecture, warp_size)
    return target
