"""What a machine has installed that results depend on."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib import metadata

from inductoscope.version import __version__

ABSENT = "none"


def own_versions() -> dict[str, str]:
    """The versions on this machine, by what they are of; asked without importing anything large."""
    return {
        "torch": _installed("torch"),
        "triton": _installed("triton"),
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "inductoscope": __version__,
        "processor": platform.machine(),
    }


def _installed(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ABSENT


def differences(theirs: Mapping[str, str], ours: Mapping[str, str]) -> list[str]:
    """What another machine has that differs from ours, in words."""
    return [
        f"{name} {theirs.get(name, ABSENT)} instead of {version}"
        for name, version in ours.items()
        if theirs.get(name, ABSENT) != version
    ]
