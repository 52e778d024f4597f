"""Values of kernel buffers, saved by `run --values` as files of a recording."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.recording.codec import decode, encode

FOLDER = "values"
INDEX = "index.jsonl"
# The file of requested sizes in bytes, in the order of the requests.
WANTED = "wanted.txt"
# Limits: saved calls of each kernel per process, and bytes of all files of a run.
MOST_CALLS = 4
MOST_GIB = 4
# The environment variable that selects kernels and the recording.
VARIABLE = "INDUCTOSCOPE_VALUES"


@dataclass(frozen=True)
class KernelValue:
    """The contents of one buffer after one kernel call."""

    kernel: str
    # The number of the kernel's call in its process, from 1.
    call: int
    buffer: str
    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    device: str
    # The path relative to the recording; empty if not saved, for the given reason.
    file: str = ""
    why_not: str = ""
    # Statistics over the finite values.
    smallest: float | None = None
    largest: float | None = None
    mean: float | None = None
    nan: int = 0
    infinite: int = 0


def write_value(value: KernelValue, folder: Path) -> None:
    with (folder / FOLDER / INDEX).open("a", encoding="utf-8") as file:
        file.write(json.dumps(encode(value)) + "\n")


def has_room(folder: Path, size: int, *, most: int = MOST_GIB << 30) -> bool:
    """Check whether a file of this size still fits into `most` bytes in all.

    All processes of a run share the limit. Each appends its request to a file and then reads the
    earlier requests, an order that is the same for all: a fork could inherit a lock.
    """
    with (folder / FOLDER / WANTED).open("ab+", buffering=0) as file:
        file.write(b"%d\n" % size)
        end = file.tell()
        file.seek(0)
        *before, _own = map(int, file.read(end).split())
    left = most
    for wanted in before:
        left -= wanted if wanted <= left else 0
    return size <= left


def read_values(folder: Path) -> Iterator[KernelValue]:
    """Yield all values of a recording, in call order; skip damaged lines."""
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
