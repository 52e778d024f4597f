"""A kernel whose compile may never end, with what is known of it beyond its configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from inductoscope.hangs.choices.quantities import Configuration, is_number

# Bytes of shared memory that one block can have, by compute capability.
_SHARED_BYTES = {75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448}
_SHARED_BYTES |= {100: 232448, 103: 232448, 120: 101376, 121: 101376}
_SHARED_BYTES_OF_AMD = 65536
_ELEMENT_BYTES = {"fp64": 8, "i64": 8, "fp32": 4, "i32": 4, "bf16": 2, "fp16": 2, "i16": 2}


@dataclass(frozen=True)
class Suspect:
    """One choice. Unknown values are empty, and no rule uses them."""

    configuration: Configuration
    # cuda, hip or xpu.
    device: str = ""
    # 90 of an H100, gfx942 of an MI300.
    architecture: str = ""
    # The types of the pointers in its signature, as Triton writes them: *bf16.
    pointers: tuple[str, ...] = ()
    source: str = ""
    more: dict[str, str] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """A numeric value of the configuration."""
        value = self.configuration.get(name)
        return float(value) if is_number(value) else None

    def numbers(self, *names: str) -> tuple[float, ...] | None:
        """Several, if all are there."""
        found = [self.number(name) for name in names]
        return tuple(value for value in found if value is not None) if None not in found else None

    @property
    def compute_capability(self) -> int | None:
        """Of an NVIDIA device: 90 for sm_90."""
        digits = re.sub(r"\D", "", self.architecture)
        return int(digits) if self.device == "cuda" and digits else None

    @property
    def shared_limit(self) -> int | None:
        """Bytes of shared memory that a block of it may have."""
        if self.device == "hip":
            return _SHARED_BYTES_OF_AMD
        return _SHARED_BYTES.get(self.compute_capability or 0)

    @property
    def element_bytes(self) -> int:
        """Of what it reads; two where that is not known, as matrix products mostly have."""
        sizes = [_ELEMENT_BYTES.get(pointer.lstrip("*"), 0) for pointer in self.pointers]
        return max(sizes, default=0) or 2

    @property
    def lanes(self) -> int:
        """Threads that run in step."""
        return 64 if self.device == "hip" else 32
