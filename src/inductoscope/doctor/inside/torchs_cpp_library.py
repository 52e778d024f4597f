"""Has packages that bring a copy of libstdc++ use the one that torch uses.

Otherwise loading such a package may end the process, and what it computes would never be checked.
It is noted, so that the part outside finds out whether the program dies without that.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inductoscope.capture.hooks.ahead_of_time import calling_line
from inductoscope.capture.scope import SCOPE
from inductoscope.errors import InductoscopeError
from inductoscope.packages import cpp_library
from inductoscope.packages.package import read_package
from inductoscope.recording.events.checking import CppLibraryTaken

_noted: set[str] = set()


def before_loading(path: Any, name: str | None) -> None:
    """A package, or a library, is about to be loaded."""
    if not isinstance(path, (str, os.PathLike)):
        return  # A buffer.
    try:
        library = read_package(Path(path), verify=False).model(name).library
    except InductoscopeError:
        return  # torch says what is wrong with it.
    if cpp_library.brings_own(library):
        _take(os.path.basename(path))


def after_compiling(libraries: Sequence[str]) -> None:
    """These libraries are made. They may be loaded in a way that is not seen here."""
    if any(cpp_library.file_brings_own(Path(library)) for library in libraries):
        _take("")


def _take(package: str) -> None:
    if package not in _noted and cpp_library.take_from_torch():
        _noted.add(package)
        file, line = calling_line() if package else ("", 0)
        SCOPE.emit(CppLibraryTaken(package=package, source=f"{file}:{line}" if file else ""))
