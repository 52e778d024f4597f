"""Settings of the compiler that a program has changed, compared with a fresh process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from inductoscope.capture.program_settings import changed_settings
from inductoscope.doctor.compare.passes import users_place

TORCH_NAMES = {
    "torch._inductor.config": ("_config",),
    "torch.utils._config_module": ("_UNSET_SENTINEL",),
}


def inductor_settings() -> dict[str, Any]:
    """Plain settings of Inductor that the program has changed."""
    return {name: value for name, value in _all_changed().items() if _is_plain(value)}


def settings_with_code() -> dict[str, Any]:
    """Settings whose values are functions or objects of the program's own, such as passes."""
    return {name: value for name, value in _all_changed().items() if users_place(value)}


def _all_changed() -> dict[str, Any]:
    found = changed_settings("torch._inductor.config")
    found.pop("fallback_random", None)  # Set by this tool.
    return found


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str, type(None)))


def as_when_fresh(settings: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The settings, with these reset to their values in a fresh process.

    It is not enough to leave a setting out: this process has it, and so do its forks.
    """
    return {**settings, **{name: _fresh_value(name) for name in names}}


def to_be_made(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings whose values differ from those in a fresh process."""
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
