"""Packages that contain a copy of the C++ library, besides the one that torch uses.

A compiler that links libstdc++ statically puts a copy into every library that it makes, and exports
its symbols. Once such a library is loaded into a process with torch, some symbols resolve to the
copy and others to libstdc++.so.6: streams look up locale facets with the ids of the other library,
and the process dies or raises std::bad_cast. If libstdc++.so.6 is in the global scope of the
process before the library is loaded, the loader resolves all symbols there, and none to the copy.

Nothing here imports torch.
"""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from inductoscope.packages.elf import SharedLibrary, mapped

NAME = "libstdc++.so.6"

# Statements for a program or script to run before it loads such a library. torch has to be imported
# first: otherwise a libstdc++.so.6 other than torch's may be found.
CODE = f'ctypes.CDLL("{NAME}", mode=ctypes.RTLD_GLOBAL)'
PRELOAD = f"LD_PRELOAD={NAME}"
CURE = (
    "Better, build the package again with a compiler that links libstdc++ dynamically; CXX names "
    "the one to use."
)

# A symbol of std::locale that every stream uses.
_LOCALE = "_ZNSt6locale10_S_classicE"
_SECONDS = 30
_COMPILERS = ("g++", "c++", "clang++")


def brings_own(library: SharedLibrary | None) -> bool:
    """Check whether a library exports a copy of libstdc++ to the loader."""
    return library is not None and _LOCALE in library.defined


def file_brings_own(path: Path) -> bool:
    """Check a library in a file for a copy of libstdc++; False if it cannot be read."""
    try:
        return _LOCALE in mapped(path).defined
    except (OSError, ValueError, LookupError, struct.error):
        return False


def take_from_torch() -> bool:
    """Put the C++ library that torch uses into the global scope of this process."""
    try:
        ctypes.CDLL(NAME, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def preloaded(library: str = NAME) -> dict[str, str]:
    """Return the LD_PRELOAD variable that loads a library first in a new process."""
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}


def linked_by(compiler: Sequence[str]) -> str:
    """Return the file that a compiler links as libstdc++; empty if unknown."""
    command = [*compiler, "-shared", "-Wl,--trace", "-o", "/dev/null", "-x", "c++", "/dev/null"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"(\S*libstdc\+\+[\w.-]*\.(?:a|so)[.\d]*)", done.stdout)
    return found[1] if found else ""


def installed_compiler() -> list[str] | None:
    """Return the compiler's command. CXX may hold options, or a launcher such as ccache."""
    for candidate in (os.environ.get("CXX", ""), *_COMPILERS):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    return None
