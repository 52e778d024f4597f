"""Whether Python finds the module of `-m MODULE`, asked before anything is recorded."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

# Python looks for a module the way that `-m` does: in the current folder first, and in a package
# only after importing it, which may be slow and may do anything. So a child process does it.
_LOOK = """
import importlib.util, sys
name = sys.argv[1]
try:
    found = importlib.util.find_spec(name)
    if found is not None and found.submodule_search_locations is not None:
        found = importlib.util.find_spec(name + ".__main__")
except ModuleNotFoundError as error:
    # Something else that a package imports may be missing: that is for the program to say.
    parents = [name.rsplit(".", left)[0] for left in range(name.count(".") + 1)]
    found = None if error.name in parents else name
except BaseException:
    found = name
sys.exit(0 if found else 44)
"""
_NOT_FOUND = 44
_LONGEST_WAIT = 60.0


def is_missing(module: str) -> bool:
    """True only if this Python is certain not to find it; a doubt is left to the program."""
    if "." not in module and _is_plain_module(module):
        return False
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOOK, module],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LONGEST_WAIT,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == _NOT_FOUND


def _is_plain_module(name: str) -> bool:
    """A module of one file, found without importing anything: no child is needed."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return False
    return found is not None and found.submodule_search_locations is None
