"""The configurations that a kernel is compiled with, and where each comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.kernels.file import KernelFile, Scalar

# What Triton's backends take besides the kernel's own arguments.
OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim",
    "kpack", "schedule_hint", "enable_fp_fusion", "enable_reflect_ftz", "launch_cooperative_grid",
    "launch_pdl", "num_consumer_groups", "num_buffers_warp_spec", "generate_native_code",
    "debug", "sanitize_overflow",
)  # fmt: skip

# triton.Config's own, for a kernel of the user's that says nothing.
_TRITON_DEFAULTS = {"num_warps": 4, "num_stages": 3}

_BLOCKS = {"XBLOCK": "x", "YBLOCK": "y", "ZBLOCK": "z", "R0_BLOCK": "r0_", "R1_BLOCK": "r1_"}
_LARGEST_BLOCK = 1024
_IN_FILE = ("template", "user_autotune", "fixed_config")


@dataclass(frozen=True)
class Config:
    """Values of constexpr arguments and options of Triton, and who chose them."""

    values: Mapping[str, Any]
    origin: str
    is_own: bool = True  # one that the program would have compiled with

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.values.items())


def parse_config(text: str) -> Mapping[str, Scalar]:
    """`XBLOCK=64,num_warps=8` as typed on the command line."""
    found: dict[str, Scalar] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, equals, value = word.partition("=")
        if not equals or not name.strip().isidentifier() or not value.strip():
            raise UsageError(
                f"{word} is not a setting. Write, for example, --config XBLOCK=64,num_warps=8."
            )
        found[name.strip()] = _scalar(value.strip())
    return found


def _scalar(text: str) -> Scalar:
    if text in ("True", "False"):
        return text == "True"
    if re.fullmatch(r"-?\d{1,18}", text):
        return int(text)
    try:
        return float(text)
    except ValueError:
        return text


def configs_in_file(kernel: KernelFile) -> list[Config]:
    """The configurations that the file fixes; empty if torch chooses them at run time."""
    if kernel.heuristic not in _IN_FILE:
        return []
    if kernel.configs:
        return [Config(dict(config), "the file") for config in kernel.configs]
    if kernel.heuristic == "template":
        own = {"num_warps": kernel.num_warps, "num_stages": kernel.num_stages}
        return [Config({k: v for k, v in own.items() if v is not None}, "the file")]
    return [Config(_TRITON_DEFAULTS, "Triton's defaults, because the file has none")]


def default_config(kernel: KernelFile) -> Config:
    """A simple choice for when torch, which would choose better, is not installed."""
    values: dict[str, Any] = {}
    room = _LARGEST_BLOCK
    for name in _free_arguments(kernel):
        hint = kernel.size_hints.get(_BLOCKS.get(name, ""))
        if isinstance(hint, int) and hint > 0:
            values[name] = max(1, min(_power_of_two(hint), room))
            room = max(1, room // values[name])
    values |= {"num_warps": 4, "num_stages": 1}
    return Config(values, "inductoscope's default", is_own=False)


def _free_arguments(kernel: KernelFile) -> list[str]:
    """The constexpr arguments that the file leaves open."""
    return [name for name in kernel.body.constexpr_arguments if name not in kernel.constants]


def _power_of_two(number: int) -> int:
    return 1 << max(0, (number - 1).bit_length())


def with_settings(config: Config, settings: Mapping[str, Scalar]) -> Config:
    """The configuration with what the user asked for in its place."""
    if not settings:
        return config
    origin = "--config" if set(config.values) <= set(settings) else f"--config over {config.origin}"
    return Config({**config.values, **settings}, origin, is_own=False)


def open_arguments(kernel: KernelFile, values: Mapping[str, Any]) -> list[str]:
    """The constexpr arguments that nobody has chosen a value for."""
    return [name for name in _free_arguments(kernel) if name not in values]


def check_settings(kernel: KernelFile, names: Sequence[str]) -> None:
    """Refuse a setting that this kernel does not have."""
    own = [*kernel.body.constexpr_arguments, *kernel.body.constexpr_values]
    unknown = [name for name in names if name not in own and name not in OPTIONS]
    if unknown:
        raise UsageError(
            f"{kernel.name} has no {', '.join(unknown)}. It has: "
            f"{', '.join([*own, *OPTIONS[:2]])}, and Triton options such as waves_per_eu."
        )
