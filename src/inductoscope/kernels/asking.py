"""Asks torch, in a child process, how it would configure a kernel at run time."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from inductoscope.kernels.configs import Config
from inductoscope.kernels.file import KernelFile
from inductoscope.kernels.literals import code, is_plain
from inductoscope.processes.limited import ChildEvent, ChildLimits, ChildProgram, run_child

_IMPORTS = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import (
    AutotuneHint, DeviceProperties, ReductionHint, TileHint,
)
"""
# No cache may answer for torch: neither the user's nor one on the network.
_NO_CACHES = {
    "autotune_local_cache": False,
    "autotune_remote_cache": False,
    "bundled_autotune_remote_cache": False,
    "force_disable_caches": True,
}
_SECONDS = 120.0


def has_torch() -> bool:
    """Whether torch is installed, without importing it."""
    return importlib.util.find_spec("torch") is not None


def ask_torch(kernel: KernelFile, limits: ChildLimits, folder: Path) -> tuple[list[Config], str]:
    """The configurations torch would try for this kernel, or the reason there are none."""
    if not has_torch():
        return [], "torch is not installed"
    module = folder / "asked.py"
    module.write_text(module_text(kernel), "utf-8")
    answers: list[ChildEvent] = []
    program = ChildProgram(
        Path(__file__).with_name("ask_torch.py"),
        (str(module),),
        {"TRITON_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_CACHE_DIR": str(folder)},
    )
    bound = ChildLimits(_SECONDS, _SECONDS, limits.memory_gib)
    ended = run_child(program, bound, folder, answers.append)
    for answer in (*answers, *ended.events):
        if answer.get("event") == "configs":
            return _configs(kernel, answer), ""
        if answer.get("event") == "error":
            return [], f"torch could not answer ({str(answer.get('message'))[:300]})"
    if ended.exit_code is None:
        return [], f"torch did not answer within {_SECONDS:g} s"
    return [], f"torch did not answer ({ended.output[-300:].strip() or ended.exit_code})"


def _configs(kernel: KernelFile, answer: ChildEvent) -> list[Config]:
    origin = f"the heuristics of the installed torch {answer.get('torch')}"
    found = answer.get("configs")
    given = [c for c in found if isinstance(c, Mapping)] if isinstance(found, list) else []
    own = (*kernel.body.constexpr_arguments, "num_warps", "num_stages")
    return [Config(_ordered(config, own), origin) for config in given]


def _ordered(config: Mapping[str, Any], first: tuple[str, ...]) -> dict[str, Any]:
    """Block sizes before warps and stages; what is left at nothing is left out."""
    names = [*(n for n in first if n in config), *(n for n in config if n not in first)]
    return {name: config[name] for name in names if config[name] is not None}


def module_text(kernel: KernelFile) -> str:
    """The kernel under its heuristic, built from values that were read."""
    keywords = {name: value for name, value in kernel.keywords.items() if is_plain(value)}
    about = {name: value for name, value in kernel.inductor_meta.items() if is_plain(value)}
    keywords["inductor_meta"] = {**about, **_NO_CACHES}
    words = [f"    {name}={code(v)}," for name, v in keywords.items() if name != "filename"]
    decorator = [f"@triton_heuristics.{kernel.heuristic}(", *words, "    filename=__file__,", ")"]
    parts = [_IMPORTS]
    for definition in kernel.definitions:
        if definition is kernel.kernel:
            parts.append("\n".join(decorator))
        parts.append(definition.source)
    return "\n".join(parts) + "\n"
