"""Where the tools that we compare with are."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NOT_INSTALLED = "not installed"


def find_tlparse() -> str | None:
    """tlparse: where `make` installs it, beside this Python, or on the path."""
    folders = (
        ROOT / ".venv" / "peers" / "bin",
        Path(sys.prefix) / "peers" / "bin",
        Path(sys.executable).parent,
        os.environ.get("PATH", os.defpath),
    )
    return shutil.which("tlparse", path=os.pathsep.join(map(str, folders)))


def ways_of_tlparse(tlparse: str, trace: Path, pages: Path) -> dict[str, list[str]]:
    """As usual, and as fast as it can be: without colours in the code."""
    usual = [tlparse, str(trace), "-o", str(pages), "--overwrite", "--no-browser"]
    return {TLPARSE: usual, TLPARSE_AT_BEST: [*usual, "--plain-text"]}


TLPARSE, TLPARSE_AT_BEST = "tlparse", "tlparse --plain-text"
