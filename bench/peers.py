"""Where the tools that we compare with are."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def find_tlparse() -> str | None:
    """tlparse, first where `make` installs it: in an environment that has nothing else."""
    folders = (str(Path(sys.prefix) / "peers" / "bin"), os.environ.get("PATH", os.defpath))
    return shutil.which("tlparse", path=os.pathsep.join(folders))
