"""Runs pytest with the plugin on small suites."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.programs import Workplace

# The plugin by its module, whether or not this checkout is installed with its entry points.
PYTEST = (sys.executable, "-m", "pytest", "-p", "inductoscope.pytest_plugin")
BARE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}


def run_suite(workplace: Workplace, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """`pytest WORDS` in the folder; what it leaves behind would be in the folder 'temporary'."""
    temporary = workplace.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    return workplace.call([*PYTEST, *words], TMPDIR=str(temporary), **BARE, **more)


def written(workplace: Workplace) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((workplace.folder / "out.json").read_text())
    return data


def recordings_left(workplace: Workplace) -> list[Path]:
    return list((workplace.folder / "temporary").glob("inductoscope-*"))
