"""The autotuning choices of one operation, sorted by how far they got, with their kernel files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from inductoscope.errors import InductoscopeError
from inductoscope.hangs.choices.contrast import Configuration, is_number
from inductoscope.hangs.logs.program import Group
from inductoscope.torch_facts.log_choices import Choice

if TYPE_CHECKING:
    from inductoscope.torch_facts.triton_kernels import KernelFile


# Bytes of shared memory that one block can have, by compute capability.
_SHARED_BYTES = {75: 65536, 80: 166912, 86: 101376, 87: 166912, 89: 101376, 90: 232448}
_SHARED_BYTES |= {100: 232448, 103: 232448, 120: 101376, 121: 101376}
_SHARED_BYTES_OF_AMD = 65536
# 32-bit registers of a thread, by the kind of device; of AMD, by the family of the architecture.
_REGISTERS = {"cuda": 255, "xpu": 128, "gfx9": 512, "gfx1": 256}
_OPTIONS_OF_AMD = {"matrix_instr_nonkdim", "waves_per_eu", "kpack"}
_ELEMENT_BYTES = {"fp64": 8, "i64": 8, "fp32": 4, "i32": 4, "bf16": 2, "fp16": 2, "i16": 2}


@dataclass(frozen=True)
class Suspect:
    """An autotuning choice. Unknown values are empty, and no rule uses them."""

    configuration: Configuration
    # As its kernel file says: cuda, hip or xpu.
    target: str = ""
    # The architecture: 90 for an H100, gfx942 for an MI300.
    architecture: str = ""
    # The pointer types in the kernel's signature, in Triton's notation: *bf16.
    pointers: tuple[str, ...] = ()
    source: str = ""

    def number(self, name: str) -> float | None:
        value = self.configuration.get(name)
        return float(value) if is_number(value) else None

    @property
    def device(self) -> str:
        """The kind of device; AMD's is known by its options, too."""
        return self.target or ("hip" if _OPTIONS_OF_AMD & self.configuration.keys() else "")

    @property
    def compute_capability(self) -> int | None:
        """The compute capability of an NVIDIA device: 90 for sm_90."""
        digits = re.sub(r"\D", "", self.architecture)
        return int(digits) if self.device == "cuda" and digits else None

    @property
    def shared_limit(self) -> int | None:
        """The most shared memory per block, in bytes."""
        if self.device == "hip":
            return _SHARED_BYTES_OF_AMD
        return _SHARED_BYTES.get(self.compute_capability or 0)

    @property
    def element_bytes(self) -> int:
        """The size of the elements the kernel reads; 2 if unknown, as in most matrix products."""
        sizes = [_ELEMENT_BYTES.get(pointer.lstrip("*"), 0) for pointer in self.pointers]
        return max(sizes, default=0) or 2

    @property
    def lanes(self) -> int:
        """The threads of a warp; 64 if only known to be AMD's, as on its data center GPUs."""
        return 64 if self.device == "hip" and not self.architecture.startswith("gfx1") else 32

    @property
    def registers(self) -> int | None:
        """The most registers that a thread can have, if known."""
        family = self.architecture[:4] if self.device == "hip" else self.device
        return _REGISTERS.get(family)


# --- The choices of one operation, sorted by how far they got -------------------------------------


@dataclass(frozen=True)
class StuckChoices:
    """The choices of one operation: those that never finished, and those that did."""

    compile: str
    operation: str
    stuck: tuple[Choice, ...]
    finished: tuple[Choice, ...]
    # Choices not started because the stuck ones occupy all threads: nothing is known about them.
    waiting: tuple[Choice, ...] = ()
    failed: tuple[Choice, ...] = ()
    # Seconds of the slowest finished choice.
    longest: float = 0.0
    # Whether the choices were being benchmarked, rather than precompiled.
    while_timed: bool = False

    def joined_with(self, other: StuckChoices) -> StuckChoices:
        """Merge the choices of two runs of the program; stuck in either run means stuck."""
        stuck = {_key(choice): choice for choice in (*self.stuck, *other.stuck)}
        finished = {_key(choice): choice for choice in (*self.finished, *other.finished)}
        waiting = {_key(choice): choice for choice in (*self.waiting, *other.waiting)}
        return replace(
            self,
            stuck=tuple(stuck.values()),
            finished=tuple(c for key, c in finished.items() if key not in stuck),
            waiting=tuple(c for key, c in waiting.items() if key not in {**stuck, **finished}),
            longest=max(self.longest, other.longest),
        )


def _key(choice: Choice) -> tuple[str, str]:
    """Return a key of the choice that is equal in every run; its file's name may not be."""
    settings = repr(sorted(choice.configuration.items())) if choice.configuration else choice.name
    return choice.kind, settings


def choices_of(group: Group) -> StuckChoices:
    """Return the choices of a group; until torch waits for it, unfinished ones count as stuck."""
    return StuckChoices(
        group.origin.compile_id,
        group.operation,
        stuck=tuple(state.choice for state in group.stuck or group.pending),
        finished=tuple(state.choice for state in group.finished),
        waiting=tuple(state.choice for state in group.queued),
        failed=tuple(state.choice for state in group.failed),
        longest=max((state.seconds or 0.0 for state in group.finished), default=0.0),
    )


# --- The generated kernel files that exist on this machine ----------------------------------------
#
# The paths come from a log, so a file is read only if it is a plain, small one, and never executed.

_LARGEST = 1 << 20


def kernel_of(choice: Choice) -> KernelFile | None:
    """Return the kernel file of a choice; None if there is none or it cannot be read."""
    from inductoscope.torch_facts.triton_kernels import read_kernel_file

    if not choice.path.endswith(".py") or not _is_plain(choice.path):
        return None
    try:
        return read_kernel_file(choice.path)
    except InductoscopeError:
        return None


def suspect_of(choice: Choice) -> Suspect:
    """Return a choice with data from its file. Data from the log takes precedence."""
    file = kernel_of(choice)
    if file is None:
        return Suspect(dict(choice.configuration))
    target = file.target
    return Suspect(
        {**file.configuration, **choice.configuration},
        target=target.kind if target else "",
        architecture=str(target.architecture) if target else "",
        pointers=tuple(kind for kind in file.signature.values() if kind.startswith("*")),
        source=file.source,
    )


def missing_files(choices: Sequence[Choice]) -> tuple[str, ...]:
    """Return the files of these choices that are not on this machine."""
    paths = dict.fromkeys(choice.path for choice in choices if choice.path)
    return tuple(path for path in paths if not _is_plain(path))


def _is_plain(path: str) -> bool:
    try:
        return os.path.isfile(path) and os.path.getsize(path) <= _LARGEST
    except (OSError, ValueError):
        return False
