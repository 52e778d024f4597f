"""Where Python looks for modules, for a process that is started in another folder."""

from __future__ import annotations

import os
from collections.abc import Mapping

_PATH = "PYTHONPATH"


def with_absolute_path(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with every folder of PYTHONPATH as it is named from here."""
    found = dict(environment)
    if found.get(_PATH):
        # An empty one is the folder that Python is started in.
        found[_PATH] = os.pathsep.join(map(os.path.abspath, found[_PATH].split(os.pathsep)))
    return found
