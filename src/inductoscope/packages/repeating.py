"""Runs in a child process: calls a package again and again and measures what is left behind."""

from __future__ import annotations

import array
import ctypes
import gc
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from inductoscope.packages.guard_messages import DTYPES
from inductoscope.packages.loading import LoadedModel

Say = Callable[..., None]

_WINDOWS = 20
_RELOADS = 10


def repeat(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """Repeated calls, repeated loading, and streams on a GPU."""
    write_inputs(inputs, Path(order["raw_inputs"]))
    say("stage", stage="repeat")
    _watch_calls(order, inputs, say)
    say("stage", stage="reload")
    _watch_loading(order, inputs, say)
    if any(tensor.is_cuda for tensor in inputs):
        say("stage", stage="streams")
        _run_on_streams(order, inputs, say)


def write_inputs(inputs: Sequence[Any], listed: Path) -> None:
    """For the C++ program: a line for each tensor, and a file with its bytes."""
    codes = {name: code for code, name in DTYPES.items()}
    lines = []
    for number, tensor in enumerate(inputs):
        file = listed.with_name(f"input_{number}.bin")
        plain = tensor.detach().cpu()
        span = sum((n - 1) * s for n, s in zip(plain.shape, plain.stride(), strict=True)) + 1
        count = span * plain.element_size() if plain.numel() else 0
        file.write_bytes(ctypes.string_at(plain.data_ptr(), count) if count else b"")
        words = [codes[str(plain.dtype).removeprefix("torch.")], tensor.device, plain.dim()]
        lines.append(" ".join(map(str, [*words, *plain.shape, *plain.stride(), file])))
    listed.write_text("\n".join(lines) + "\n", "utf-8")


def _watch_calls(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    model = LoadedModel(order)
    say("measured", what="calls", samples=watch(lambda: model(inputs), order["serve"]["calls"]))


def watch(call: Callable[[], Any], calls: int) -> list[dict[str, int]]:
    """What was measured between as many calls, after those that set something up once."""
    window = max(1, calls // _WINDOWS)
    samples = _Samples(_WINDOWS + 1)
    for _ in range(2 * window + 10):
        call()
    samples.take(0)
    for number in range(1, _WINDOWS + 1):
        for _ in range(window):
            call()
        samples.take(number * window)
    return samples.rows()


def _watch_loading(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """Load and unload: with a call, what is left behind in files; without one, what else is."""
    for _ in range(3):
        LoadedModel(order)(inputs)
    before = _left_behind()
    for _ in range(_RELOADS):
        LoadedModel(order)(inputs)
    left = _left_behind() - before
    mapped = _mapped(order["library"])
    samples = _Samples(_RELOADS + 1)
    samples.take(0)
    for number in range(1, _RELOADS + 1):
        LoadedModel(order)
        samples.take(number)
    still = _mapped(order["library"]) - mapped
    say("measured", what="loading", left=left, mapped=still, samples=samples.rows())


def _mapped(library: str) -> int:
    """How often a library of this name is in this process, each from a file of its own."""
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as file:
        words = (line.split(maxsplit=5) for line in file)
        paths = {w[5].strip().removesuffix(" (deleted)") for w in words if len(w) == 6}
    return sum(os.path.basename(path) == library for path in paths) if library else 0


def _left_behind() -> int:
    """Entries in the folder for temporary files, which is this process's own."""
    return len(os.listdir(os.environ["TMPDIR"]))


_COLUMNS = ("calls", "resident", "allocated", "files", "threads")


class _Samples:
    """Numbers taken between calls. Taking them keeps no memory that was not there before."""

    def __init__(self, count: int) -> None:
        self._numbers = array.array("q", bytes(8 * len(_COLUMNS) * count))
        self._next = 0
        self._page = os.sysconf("SC_PAGE_SIZE")
        self._ask = _malloc_question()
        self.take(0)  # What the first one sets up.
        self._next = 0

    def take(self, calls: int) -> None:
        gc.collect()
        allocated = _allocated(self._ask)
        with open("/proc/self/statm", encoding="utf-8") as file:
            resident = int(file.read().split()[1]) * self._page
        row = (calls, resident, allocated, *map(_entries, ("fd", "task")))
        for number in row:
            self._numbers[self._next] = number
            self._next += 1

    def rows(self) -> list[dict[str, int]]:
        width = len(_COLUMNS)
        starts = range(0, len(self._numbers), width)
        return [
            dict(zip(_COLUMNS, self._numbers[start : start + width], strict=True))
            for start in starts
        ]


def _entries(folder: str) -> int:
    return len(os.listdir(f"/proc/self/{folder}"))


class _MallocInfo(ctypes.Structure):
    _fields_ = tuple((f"field{number}", ctypes.c_size_t) for number in range(10))


def _malloc_question() -> Any:
    """The function that says what malloc has given out; None where there is none."""
    try:
        ask = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return None
    ask.restype = _MallocInfo
    return ask


def _allocated(ask: Any) -> int:
    """Bytes that malloc has given out and not taken back; -1 where it cannot be asked."""
    import torch

    if ask is None:
        return -1
    on_gpu = int(torch.cuda.memory_allocated()) if torch.cuda.is_initialized() else 0
    info = ask()
    # In the order of <malloc.h>: hblkhd is the fifth, uordblks the eighth.
    return int(info.field4) + int(info.field7) + on_gpu


def _run_on_streams(order: Mapping[str, Any], inputs: Sequence[Any], say: Say) -> None:
    """Calls from several streams at once must give what a call on its own gives."""
    import torch

    alone = LoadedModel(order)(inputs)
    torch.cuda.synchronize()
    count = order["serve"]["threads"]
    model = LoadedModel(order, runners=count)
    streams = [torch.cuda.Stream() for _ in range(count)]
    different = 0
    for _ in range(max(1, order["serve"]["calls"] // count)):
        results = []
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append(model(inputs))
        torch.cuda.synchronize()
        different += sum(not _same(alone, result) for result in results)
    say("measured", what="streams", calls=order["serve"]["calls"], different=different)


def _same(expected: Sequence[Any], found: Sequence[Any]) -> bool:
    import torch

    return len(expected) == len(found) and all(
        torch.allclose(one.double(), other.double(), rtol=1e-3, atol=1e-5, equal_nan=True)
        for one, other in zip(expected, found, strict=True)
    )
