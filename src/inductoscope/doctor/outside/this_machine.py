"""What this machine computes with: a verdict holds for it, and perhaps for no other."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

# What torch says to a program that asks for a GPU where none is.
_NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "Found no NVIDIA driver",
    "no CUDA-capable device is detected",
    "Cannot access accelerator device when none is available",
    "Attempting to deserialize object on a CUDA device",
    "0 active drivers",
)

ELSEWHERE = "a failure that was seen elsewhere may need that processor or GPU"


def this_machine(root: Path = Path("/")) -> str:
    """The processor and the GPUs: 'aarch64, no GPU'."""
    return f"{platform.machine()}, {_gpus(root) or 'no GPU'}"


def _gpus(root: Path) -> str:
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return ""
    files = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    named = [re.search(r"Model:\s*(.+)", file.read_text("utf-8", "replace")) for file in files]
    models = [found[1].strip() for found in named if found]
    if models:
        return ", ".join(dict.fromkeys(models))
    if any(root.glob("dev/nvidia[0-9]*")):
        return "an NVIDIA GPU"
    return "an AMD GPU" if (root / "dev/kfd").exists() else ""


def asks_for_missing_gpu(output: str) -> bool:
    """Whether a program ended because this machine has no GPU."""
    return any(sign in output for sign in _NO_GPU)
