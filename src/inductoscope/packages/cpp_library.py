"""Packages that bring a copy of the C++ library, beside the one that torch uses.

A compiler that links libstdc++ statically puts a copy into every library that it makes, and exports
its symbols. Once such a library is loaded into a process with torch, some of them are found in the
copy and others in libstdc++.so.6: streams look up what a locale holds with the numbers of the other
one, and the process dies or raises std::bad_cast. If libstdc++.so.6 is in the global scope of the
process before the library is loaded, the loader takes everything from there and none of the copy.

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
from collections.abc import Iterable, Sequence
from pathlib import Path

from inductoscope.packages.elf import SharedLibrary, mapped

NAME = "libstdc++.so.6"

# What a program, or a script, needs before it loads such a library. torch has to be imported first:
# otherwise another libstdc++.so.6 than torch's may be found.
CODE = f'ctypes.CDLL("{NAME}", mode=ctypes.RTLD_GLOBAL)'
PRELOAD = f"LD_PRELOAD={NAME}"

# Of std::locale: what every stream looks up.
_LOCALE = "_ZNSt6locale10_S_classicE"
_SECONDS = 30
_COMPILERS = ("g++", "c++", "clang++")


def brings_own(library: SharedLibrary | None) -> bool:
    """Whether the loader would see a copy of libstdc++ in it."""
    return library is not None and _LOCALE in library.defined


def file_brings_own(path: Path) -> bool:
    """The same for a library in a file; False if it cannot be read."""
    try:
        return mapped(path).has_symbol(_LOCALE)
    except (OSError, ValueError, IndexError, struct.error):
        return False


def take_from_torch() -> bool:
    """Put the C++ library that torch uses into the global scope of this process."""
    try:
        ctypes.CDLL(NAME, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return False
    return True


def preloaded(library: str = NAME) -> dict[str, str]:
    """The variable that has a new process begin with it."""
    return {"LD_PRELOAD": f"{os.environ.get('LD_PRELOAD', '')} {library}".strip()}


def linked_by(compiler: Sequence[str]) -> str:
    """The file that a compiler takes for libstdc++ in a library; empty if it does not say."""
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
    """The words that call it. CXX may carry options, or a launcher such as ccache."""
    for candidate in (os.environ.get("CXX", ""), *_COMPILERS):
        words = shlex.split(candidate)
        if words and shutil.which(words[0]):
            return words
    return None


def every_compiler() -> list[str]:
    """All C++ compilers on PATH, in the order in which they are found."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    found = (shutil.which(name, path=folder) for name in _COMPILERS for folder in folders if folder)
    return list(dict.fromkeys(path for path in found if path))


def advice() -> str:
    """How packages come to use the shared one, for the compiler that builds them and others."""
    return advice_on(installed_compiler(), every_compiler())


def advice_on(compiler: Sequence[str] | None, others: Iterable[str]) -> str:
    """The same for given compilers."""
    if compiler is None:
        return "This machine has no C++ compiler."
    name, file = " ".join(compiler), linked_by(compiler)
    if not file:
        return f"Which one {name} takes here is not known."
    if not file.endswith(".a"):
        return f"On this machine {name} does so: it takes {file}."
    text = f"On this machine {name} does not: it takes {file}"
    better = next((path for path in others if ".so" in linked_by([path])), None)
    cure = f"{better} does: set CXX={better}." if better else "Set CXX to one that does."
    return f"{text}. {cure}"
