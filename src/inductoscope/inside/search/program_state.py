"""The settings of torch that a program's compiled code depends on, for another thread or process.

Torch keeps gradients and autocast per thread. The rest belongs to the process; a copy of the
program that was taken before does not have it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch

from inductoscope.inside.compare.passes import users_place
from inductoscope.inside.compare.values import matmul_precision, without_autocast_cache
from inductoscope.inside.program_settings import changed_settings

_DEVICES = ("cpu", "cuda")
# Attributes of `torch.backends`, and what they are in a fresh process.
_BACKENDS = {
    "cudnn.allow_tf32": True,
    "cudnn.benchmark": False,
    "cudnn.deterministic": False,
    "cuda.matmul.allow_fp16_reduced_precision_reduction": True,
    "cuda.matmul.allow_bf16_reduced_precision_reduction": True,
}


@dataclass(frozen=True)
class TorchState:
    gradients: bool
    autocast: dict[str, Any]
    precision: str
    default_dtype: Any
    # 0, 1 for a warning, 2 for an error.
    determinism: int
    backends: dict[str, Any]

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Apply the per-thread settings inside the block."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(self.gradients))
            stack.enter_context(without_autocast_cache())  # Each run has copies of parameters.
            for name in _DEVICES:
                stack.enter_context(_autocast(name, self.autocast.get(name)))
            yield

    @property
    def unusual_backends(self) -> dict[str, Any]:
        """Settings of `torch.backends` that differ from those of a fresh process."""
        return {k: value for k, value in self.backends.items() if value != _BACKENDS[k]}

    def adopt(self) -> None:
        """Apply the per-process settings to this process, for good."""
        # A graph names its devices; what the search itself makes belongs in main memory.
        torch.set_default_device(None)
        torch.set_default_dtype(self.default_dtype)
        torch.set_deterministic_debug_mode(self.determinism)
        if self.precision:
            torch.set_float32_matmul_precision(self.precision)
        for path, value in self.backends.items():
            owner, name = _owner(path)
            with contextlib.suppress(Exception):
                setattr(owner, name, value)


@contextlib.contextmanager
def _autocast(device: str, dtype: Any) -> Iterator[None]:
    """Set autocast like `torch.autocast`, but without querying the GPU, which is off limits here.

    Without a dtype, autocast is off.
    """
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    torch.set_autocast_enabled(device, dtype is not None)
    if dtype is not None:
        torch.set_autocast_dtype(device, dtype)
    try:
        yield
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
        torch.clear_autocast_cache()


def current_state() -> TorchState:
    on = [name for name in _DEVICES if torch.is_autocast_enabled(name)]
    return TorchState(
        gradients=torch.is_grad_enabled(),
        autocast={name: torch.get_autocast_dtype(name) for name in on},
        precision=matmul_precision(),
        default_dtype=torch.get_default_dtype(),
        determinism=torch.get_deterministic_debug_mode(),
        backends=dict(_backends()),
    )


def _backends() -> Iterator[tuple[str, Any]]:
    for path in _BACKENDS:
        with contextlib.suppress(Exception):
            owner, name = _owner(path)
            yield path, getattr(owner, name)


def _owner(path: str) -> tuple[Any, str]:
    owner, _, name = f"backends.{path}".rpartition(".")
    return attrgetter(owner)(torch), name


# --- Settings of the compiler that a program has changed, compared with a fresh process -----------


def inductor_settings() -> dict[str, Any]:
    """Return Inductor settings with plain values that the program has changed."""
    return {name: value for name, value in _all_changed().items() if _is_plain(value)}


def settings_with_code() -> dict[str, Any]:
    """Return settings whose values are the program's own functions or objects, such as passes."""
    return {name: value for name, value in _all_changed().items() if users_place(value)}


def _all_changed() -> dict[str, Any]:
    found = changed_settings("torch._inductor.config")
    found.pop("fallback_random", None)  # Set by this tool.
    return found


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, type(None)))


def as_when_fresh(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the settings with these reset to their values in a fresh process.

    Leaving a setting out is not enough, because this process and its forks have it.
    """
    return {**settings, **{name: _fresh_value(name) for name in names}}


def to_be_made(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that differ from those of a fresh process."""
    return {name: value for name, value in settings.items() if value != _fresh_value(name)}


def _fresh_value(name: str) -> Any:
    from torch._inductor import config
    from torch.utils._config_module import _UNSET_SENTINEL

    entry = config._config.get(name)
    if entry is None:
        return None
    # The environment applies to a fresh process too.
    by_environment = entry.env_value_default
    return entry.default if by_environment is _UNSET_SENTINEL else by_environment
