"""How the scope reaches a process: a start-up hook on PYTHONPATH, and the recording's folder."""

from __future__ import annotations

import os
from pathlib import Path

RECORDING_VARIABLE = "INDUCTOSCOPE_RECORDING"
BOOTSTRAP = Path(__file__).resolve().parents[1] / "inside" / "bootstrap"


def with_scope(environment: dict[str, str]) -> dict[str, str]:
    """An environment with the scope's start-up hook in front of PYTHONPATH."""
    paths = [str(BOOTSTRAP), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}
