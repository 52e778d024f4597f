"""What was measured, with what and where, without anything that names the machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

from bench.peers import find_tlparse

from inductoscope.version import __version__

ROOT = Path(__file__).resolve().parent.parent


def read_versions() -> dict[str, str]:
    """Of everything that a result depends on."""
    tlparse, compiler = find_tlparse(), shutil.which(os.environ.get("CXX", "g++"))
    return {
        "torch": _distribution("torch"),
        "tlparse": _first_line([tlparse, "--version"]) if tlparse else "not installed",
        "Python": platform.python_version(),
        "g++": _first_line([compiler, "-dumpfullversion"]) if compiler else "not installed",
        "inductoscope": __version__,
    }


def _distribution(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


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


def read_commit() -> str:
    """The last commit that changed the tool; it says so if there are changes besides."""
    commit = _git("log", "-1", "--format=%h", "--", "src")
    if not commit:
        return "no commit known"
    changed = _git("status", "--porcelain", "--", "src")
    return f"{commit} with changes" if changed else commit


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
