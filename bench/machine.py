"""Measurements with their surroundings, without anything that names the machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers import NOT_INSTALLED, ROOT, find_tlparse

from inductoscope.version import __version__

# What a result depends on in this checkout.
MEASURED = ("src", "bench", "battery")
UNKNOWN_COMMIT = "no commit known"


def read_versions() -> dict[str, str]:
    """Of everything that a result depends on."""
    tlparse, compiler = find_tlparse(), shutil.which(os.environ.get("CXX", "g++"))
    return {
        "torch": _distribution("torch"),
        "tlparse": _first_line([tlparse, "--version"]) if tlparse else NOT_INSTALLED,
        "Python": platform.python_version(),
        "g++": _first_line([compiler, "-dumpfullversion"]) if compiler else NOT_INSTALLED,
        "inductoscope": __version__,
    }


def _distribution(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return NOT_INSTALLED


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    line = done.stdout.strip().partition("\n")[0]
    return line.removeprefix("tlparse ") or f"exit code {done.returncode}"


def read_machine() -> dict[str, str]:
    """Cores, architecture, memory."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cores": str(os.cpu_count()),
        "architecture": platform.machine(),
        "memory": f"{memory / 2**30:.0f} GiB",
        "system": sys.platform,
    }


def read_commit(root: Path = ROOT) -> str:
    """The last commit that changed what is measured, or what measures.

    Changes besides are told apart by a digest: other changes make another result.
    """
    commit = _git(root, "log", "-1", "--format=%h", "--", *MEASURED).decode().strip()
    if not commit:
        return UNKNOWN_COMMIT
    changes = _read_changes(root)
    digest = hashlib.sha256(changes).hexdigest()[:7]
    return f"{commit} with changes {digest}" if changes else commit


def _read_changes(root: Path) -> bytes:
    """Changes since the commit, with the files that git does not know yet."""
    changed = _git(root, "diff", "HEAD", "--binary", "--", *MEASURED)
    listed = _git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", *MEASURED)
    new = [name for name in listed.split(b"\0") if name]
    return changed + b"".join(name + (root / name.decode()).read_bytes() for name in new)


def _git(root: Path, *arguments: str) -> bytes:
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, check=False).stdout
    except OSError:
        return b""
