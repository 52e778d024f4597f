"""A second line of defence around graphs compiled from an untrusted recording.

The first is that nothing in a recording is executed. Should that fail somewhere, the process still
writes only where it has to, reaches no network, and starts no program but the compilers' own. It is
no sandbox: it stops Python, not machine code.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

_PROGRAMS = {"ptxas", "ptxas-blackwell", "cuobjdump", "nvdisasm", "ld.lld"}
# torch runs each compiler that it finds with an option that prints the version.
_ASKED = {"nvcc", "hipcc", "g++", "gcc", "c++", "cc", "clang", "clang++"}
# openssl: torch hashes its headers with it.
_CPP = {"g++", "c++", "clang++", "openssl"}
_QUESTIONS = {"--version", "-v", "-dumpversion"}
_FORBIDDEN = (
    "socket.connect",
    "socket.bind",
    "socket.sendto",
    "socket.getaddrinfo",
    "os.system",
    "os.exec",
    "os.spawn",
    "pty.spawn",
    "os.kill",
    "os.killpg",
)
# Audit events whose arguments are the program and its command line.
_STARTING = ("subprocess.Popen", "os.posix_spawn")
# Audit events that change files, each with the number of leading arguments that are paths.
_CHANGING = {
    "os.remove": 1,
    "os.rmdir": 1,
    "os.mkdir": 1,
    "os.truncate": 1,
    "os.chmod": 1,
    "os.chown": 1,
    "os.rename": 2,
    "os.link": 2,
    "os.symlink": 2,
    "shutil.rmtree": 1,
    "shutil.move": 2,
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class Refused(PermissionError):
    """The error for an operation that compiling a graph never needs."""


def stay_inside(folders: Sequence[str], *, compiles_cpp: bool = False) -> None:
    """Restrict the files that this process can write to `folders`. This cannot be undone.

    `compiles_cpp`: it may also start a C++ compiler.
    """
    roots = tuple(os.path.realpath(folder) + os.sep for folder in folders)

    def is_outside(place: Any) -> bool:
        if isinstance(place, int) or place == os.devnull:
            return False
        path = os.path.realpath(os.fsdecode(place))
        return not f"{path}{os.sep}".startswith(roots)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event.startswith(_FORBIDDEN):
            raise Refused(f"{event} is not for a graph that is compiled again")
        if event in _STARTING and not _is_compilers(*arguments[:2], compiles_cpp=compiles_cpp):
            raise Refused(f"{str(arguments[0])[:100]} is not a compiler")
        if event == "open" and _writes(arguments) and is_outside(arguments[0]):
            raise Refused(f"{str(arguments[0])[:200]} is not to be written to")
        places = arguments[: _CHANGING.get(event, 0)]
        if any(is_outside(place) for place in places):
            raise Refused(f"{event} of {str(places)[:200]}")

    sys.addaudithook(hook)


def _is_compilers(program: Any, words: Any, *, compiles_cpp: bool) -> bool:
    """Check whether a command runs part of a compiler, or only prints a program's version."""
    name = os.path.basename(os.fsdecode(program))
    if compiles_cpp and name in _CPP:
        return True
    asks = isinstance(words, (list, tuple)) and len(words) == 2 and words[1] in _QUESTIONS
    return name in _PROGRAMS or (name in _ASKED and asks)


def _writes(arguments: tuple[Any, ...]) -> bool:
    _, mode, flags = arguments
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & _WRITING)
