"""Saves the buffers of kernels to the recording, for `run --values`.

Python and C++ wrappers are rewritten, as under the doctor, to hand over the buffers of every
kernel call.
"""

from __future__ import annotations

import contextlib
import fnmatch
import itertools
import os
import re
from pathlib import Path
from typing import Any

from inductoscope.inside.gpu_use import is_capturing
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.start import InsidePart
from inductoscope.recording.kernel_values import (
    FOLDER,
    MOST_CALLS,
    MOST_GIB,
    VARIABLE,
    KernelValue,
    has_room,
    write_value,
)

_KEPT = contextlib.ExitStack()


def value_saver(folder: Path) -> InsidePart:
    """Save the buffers of kernels in this process."""
    saver = ValueSaver(folder, os.environ.get(VARIABLE, "*"))
    return InsidePart(on_import={"torch._inductor.compile_fx": saver.begin})


class ValueSaver:
    """A writer of the buffers of chosen kernels into the recording."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = pattern
        self._calls: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def begin(self) -> None:
        """Rewrite wrappers from here on; called after the import of Inductor."""
        from inductoscope.inside.compare.kernels import KernelWatch

        (self._folder / FOLDER).mkdir(exist_ok=True)
        watch = KernelWatch(compare=False, on_buffers=self.take)
        _KEPT.enter_context(watch.watching())

    def take(self, kernel: str, buffers: dict[str, Any]) -> None:
        """Save the buffers of a call, if its kernel matches and there is room."""
        SCOPE.guard(self._take, kernel, buffers)

    def _take(self, kernel: str, buffers: dict[str, Any]) -> None:
        import torch

        if not fnmatch.fnmatchcase(kernel, self._pattern):
            return
        call = self._calls[kernel] = self._calls.get(kernel, 0) + 1
        if call > MOST_CALLS or is_capturing():
            return
        for name, value in buffers.items():
            if isinstance(value, torch.Tensor):
                self._save(kernel, call, name, value)

    def _save(self, kernel: str, call: int, name: str, value: Any) -> None:
        import torch

        from inductoscope.inside.compare.values import is_plain

        about: dict[str, Any] = {
            "kernel": kernel,
            "call": call,
            "buffer": name,
            "dtype": str(value.dtype),
            "shape": tuple(value.shape),
            "stride": tuple(value.stride()),
            "device": str(value.device),
        }
        if not is_plain(value):
            about["why_not"] = "it is not an ordinary tensor in memory"
        elif not has_room(self._folder, value.numel() * value.element_size()):
            about["why_not"] = f"more than {MOST_GIB} GiB would be saved"
        else:
            number = f"{os.getpid()}-{next(self._numbers):05d}"
            about["file"] = f"{FOLDER}/{number}-{_for_file(kernel)}-{_for_file(name)}.pt"
            here = value.detach().cpu()
            torch.save(here.clone(), self._folder / about["file"])
            about |= _numbers(here)
        write_value(KernelValue(**about), self._folder)


def _for_file(name: str) -> str:
    return re.sub(r"[^\w.]+", "_", name)[:80]


def _numbers(value: Any) -> dict[str, Any]:
    """Return counts of NaN and Inf, minimum, maximum and mean of a tensor."""
    import torch

    if value.is_complex() or not value.numel():
        return {}
    numbers = value.to(torch.float64)
    finite = numbers[numbers.isfinite()]
    found: dict[str, Any] = {
        "nan": int(numbers.isnan().sum()),
        "infinite": int(numbers.isinf().sum()),
    }
    if finite.numel():
        found |= {
            "smallest": float(finite.min()),
            "largest": float(finite.max()),
            "mean": float(finite.mean()),
        }
    return found
