"""The environment variables that configure the tool inside the user's processes."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Literal

from inductoscope.launch import vector_probes

RECORDING_VARIABLE = "INDUCTOSCOPE_RECORDING"
# Which parts of the tool run in a process; see the table in `inside.start`.
PARTS_VARIABLE = "INDUCTOSCOPE_INSIDE"
# The GPU for the parts `pretend` and `rank`.
TARGET_VARIABLE = "INDUCTOSCOPE_TARGET"
# The path of the private cache.
CACHE_VARIABLE = "INDUCTOSCOPE_PRIVATE_CACHE"

# The subfolder of a private cache.
HEADERS = "precompiled_headers"
TEMPORARY = "tmp"

BOOTSTRAP = Path(__file__).resolve().parents[1] / "inside" / "bootstrap"

PartName = Literal[
    "record",
    "check",
    "sentinel",
    "values",
    "pretend",
    "rank",
    "call-times",
    "kernel-times",
    "memory",
    "eager-memory",
    "alternate",
]


def with_scope(environment: dict[str, str]) -> dict[str, str]:
    paths = [str(BOOTSTRAP), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def with_parts(*names: PartName) -> dict[str, str]:
    """Return the variable that enables these parts; by default, a process is only recorded."""
    return {PARTS_VARIABLE: ",".join(names)}


def private_cache(folder: Path) -> dict[str, str]:
    return {
        CACHE_VARIABLE: str(folder),
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def private_cache_without_scope(folder: Path) -> dict[str, str]:
    """Return the variables for a process without the scope, with cached headers, too.

    torch puts headers under the folder for temporary files, where a link leads to the cached ones.
    Vector ISA probes are skipped if their answers are known.
    """
    import getpass

    temporary = folder / TEMPORARY
    owner = temporary / f"torchinductor_{getpass.getuser()}"
    owner.mkdir(parents=True, exist_ok=True)
    (folder / HEADERS).mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (owner / HEADERS).symlink_to(folder / HEADERS)
    return {"TMPDIR": str(temporary), **vector_probes.variables(os.environ)}
