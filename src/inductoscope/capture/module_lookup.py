"""Whether Python finds the module of `-m MODULE`, asked before anything is recorded.

Nothing is imported: a package's code may be slow and may do anything, and it is the program that
runs it. So the folders of a package are looked through as Python would.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

# A package that mentions one of these may find its parts in places of its own.
_OWN_WAYS = (b"__path__", b"sys.modules", b"meta_path", b"path_hooks")


def is_missing(module: str) -> bool:
    """True only if this Python is certain not to find it; a doubt is left to the program."""
    try:
        return not _may_exist(module.split("."))
    except Exception:  # A finder of the user's environment, or a package in no plain folder.
        return False


def _may_exist(names: Sequence[str]) -> bool:
    places: Sequence[str] | None = None
    for count in range(1, len(names) + 1):
        found = _find(".".join(names[:count]), places)
        if found is None:
            return False
        if found.submodule_search_locations is None:
            return True  # A module; one that has parts all the same makes them itself.
        if _has_own_ways(found):
            return True
        places = list(found.submodule_search_locations)
    # A package is run by its part __main__.
    return _find(".".join([*names, "__main__"]), places) is not None


def _find(name: str, places: Sequence[str] | None) -> ModuleSpec | None:
    """Ask the finders of this Python; for -m the current folder comes before all others."""
    for finder in sys.meta_path:
        where = [os.getcwd(), *sys.path] if finder is PathFinder and places is None else places
        found = finder.find_spec(name, where)
        if found is not None:
            return found
    return None


def _has_own_ways(package: ModuleSpec) -> bool:
    if package.origin is None:
        return False  # A folder without __init__.py: no code of its own.
    text = Path(package.origin).read_bytes()
    return any(word in text for word in _OWN_WAYS)
