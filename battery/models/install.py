"""Installs what the models come from into a folder of its own.

A folder for PYTHONPATH instead of the environment that inductoscope is developed in: it has numpy,
which the tests are to do without, and no torch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path(__file__).parent / "requirements.txt"
_MARK = "# Added by battery/models/install.py"
# torchvision's C++ operators are built for one build of torch, and its Python code cannot be
# imported without their schemas. No model here calls them.
_SCHEMAS = f"""

{_MARK}
if not _has_ops():
    _schemas = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _schemas.define(f"{{_name}}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run(
        [*command, "--target", str(folder), "--requirement", str(REQUIREMENTS)], check=True
    )
    declare_operators(folder / "torchvision" / "extension.py")


def declare_operators(path: Path) -> None:
    """Declare torchvision's operators where its C++ library cannot be loaded."""
    text = path.read_text()
    if _MARK not in text:
        path.write_text(text + _SCHEMAS)


if __name__ == "__main__":
    main()
