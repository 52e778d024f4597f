"""Where the files of an installed torch name an environment variable.

A variable is known when code that reads the environment names it: in the Python files of the
compiler, or as a whole string in the libraries, where the C++ side keeps its names. Comments,
messages and tests prove nothing and are ignored.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

_FOLDERS = ("_inductor", "_dynamo", "_functorch", "_logging", "compiler", "fx", "utils")

# Where the C++ side reads its variables. The library of CUDA kernels is left out: it is large,
# and what it reads does not concern the compiler.
_LIBRARIES = ("c10_cuda", "c10_hip", "c10", "torch_cpu", "torch_python")

# What stands shortly before a name that is read: os.environ.get(, getenv(, env_name_force=[,
# LOG_ENV_VAR =, get_tristate_env(. A brace means that the variable is set for another process.
_READ = re.compile(rb"(?:environ|getenv|env_name|_env\(|ENV_VAR)[^;#{]{0,60}$")
_REACH = 100
_ASSIGNED = re.compile(rb"\]\s*=[^=]")


def find_variables(root: Path, names: Iterable[str]) -> dict[str, str]:
    """How each of `names` was found in the torch package at `root`; those not found are left out.

    >>> find_variables(root, ["TORCHINDUCTOR_NAN_ASSERTS"])
    {'TORCHINDUCTOR_NAN_ASSERTS': 'read in torch/_inductor/config.py:233'}
    """
    wanted = set(names)
    found = _in_python(root, wanted)
    return found | _in_libraries(root, wanted - found.keys())


def _in_python(root: Path, names: set[str]) -> dict[str, str]:
    quoted = re.compile(rb"[\"'](%s)[\"']" % b"|".join(name.encode() for name in sorted(names)))
    found: dict[str, str] = {}
    for path in _python_files(root):
        source = path.read_bytes()
        for match in quoted.finditer(source):
            name = match[1].decode()
            if name not in found and _is_read(source, match):
                line = source.count(b"\n", 0, match.start()) + 1
                found[name] = f"read in torch/{path.relative_to(root).as_posix()}:{line}"
    return found


def _is_read(source: bytes, match: re.Match[bytes]) -> bool:
    before = source[max(0, match.start() - _REACH) : match.start()]
    return bool(_READ.search(before)) and not _ASSIGNED.match(source, match.end())


def _python_files(root: Path) -> Iterator[Path]:
    """Config modules first: where several files read a variable, they are the ones to cite."""
    files = [path for folder in _FOLDERS for path in sorted((root / folder).rglob("*.py"))]
    yield from sorted(files, key=lambda path: path.name != "config.py")


def _in_libraries(root: Path, names: set[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for library in _libraries(root):
        for name in sorted(names - found.keys()):
            if _holds(library, name):
                found[name] = f"string in {library.name}"
    return found


def _libraries(root: Path) -> Iterator[Path]:
    for stem in _LIBRARIES:
        for name in (f"lib{stem}.so", f"lib{stem}.dylib", f"{stem}.dll"):
            path = root / "lib" / name
            if path.is_file() and path.stat().st_size:
                yield path


def _holds(library: Path, name: str) -> bool:
    """Whether the name is a whole C string: in a message it would have neighbours."""
    with (
        library.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        return data.find(b"\0" + name.encode() + b"\0") >= 0
