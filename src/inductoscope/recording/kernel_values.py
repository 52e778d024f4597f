"""What kernels left in their buffers, as files of a recording: `run --values`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.recording.codec import decode, encode

FOLDER = "values"
INDEX = "index.jsonl"
# The environment of the program says which kernels are wanted, and where from.
VARIABLE = "INDUCTOSCOPE_VALUES"
MODULE = "doctor.inside.value_agent"


@dataclass(frozen=True)
class KernelValue:
    """One buffer after one call of a kernel."""

    kernel: str
    # Which call of it in its process, from 1.
    call: int
    buffer: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    # Relative to the recording; empty if it was not saved, for the reason given.
    file: str = ""
    why_not: str = ""
    # Of all numbers that are neither NaN nor infinite.
    smallest: float | None = None
    largest: float | None = None
    mean: float | None = None
    nan: int = 0
    infinite: int = 0


def write_value(value: KernelValue, folder: Path) -> None:
    """Add it to the index of a recording."""
    with (folder / FOLDER / INDEX).open("a", encoding="utf-8") as file:
        file.write(json.dumps(encode(value)) + "\n")


def read_values(folder: Path) -> Iterator[KernelValue]:
    """All values of a recording, in the order of the calls; damaged lines are left out."""
    try:
        lines = (folder / FOLDER / INDEX).read_text("utf-8", "replace").splitlines()
    except OSError:
        return
    for line in lines:
        try:
            data: Any = json.loads(line)
            yield decode(KernelValue, data)
        except (ValueError, KeyError, TypeError):
            continue
