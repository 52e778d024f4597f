"""Runs in a child process: names every setting of Inductor with its default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from inductoscope.inside.child import Channel


def name_settings(channel: Channel) -> None:
    """Report all names; a value that JSON has no word for is given as the name of its type."""
    from torch._inductor import config

    found: dict[str, Any] = {}
    for name in config._config:
        value = getattr(config, name, None)
        simple = value is None or isinstance(value, (bool, int, float, str))
        found[name] = {"default": value} if simple else {"type": type(value).__name__}
    channel.say("settings", names=found)
