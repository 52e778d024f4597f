"""Settings of the compiler that a program has changed, compared with a fresh process."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from inductoscope.doctor.compare.passes import users_place

TORCH_NAMES = {
    "torch._inductor.config": ("_config", "_is_default"),
    "torch.utils._config_module": ("_UNSET_SENTINEL",),
}


def changed_settings() -> dict[str, Any]:
    """Settings that the program has changed; `fallback_random` is set by this tool."""
    found = _all_changed()
    return {name: value for name, value in found.items() if _is_plain(value)}


def settings_with_code() -> dict[str, Any]:
    """Settings whose values are functions or objects of the program's own, such as passes."""
    return {name: value for name, value in _all_changed().items() if users_place(value)}


def _all_changed() -> dict[str, Any]:
    from torch._inductor import config

    found = {}
    for name in config._config:
        with contextlib.suppress(Exception):
            if name != "fallback_random" and not config._is_default(name):
                found[name] = getattr(config, name)
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
