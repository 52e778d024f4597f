"""Classification of stack frames by the code they are in, and short forms of their paths.

Only the standard library is used: this runs in the recorded program too. Paths may come from
another machine and another system, so folders are recognised by what they are called.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

_LONGEST_STACK = 6

_PACKAGES = re.compile(r".*/(?:site|dist)-packages/", re.DOTALL)
# An installed torch, or one that was built from a checkout.
_TORCH = re.compile(
    r"(?:^|/)torch/(?:_\w|(?:ao|autograd|compiler|cuda|distributed|export|fx|jit|library|nn|optim"
    r"|overrides|utils)(?:/|\.py$))"
)
_COMPILER = re.compile(r"(?:^|/)torch/(?:_inductor|_dynamo|_functorch)/")
# The files that Inductor generates are named by a hash of what is in them.
_GENERATED = re.compile(
    r"/torchinductor_[^/]+/|/[a-z0-9]{2}/c[a-z0-9]{40,}\.(?:py|main\.cpp|cpp)$|/c[a-z2-7]{50,52}\.py$"
)
_STANDARD_LIBRARY = re.compile(r"/lib(?:64)?/python3[\d.]*t?/|/[Pp]ython3?[\d.]+/[Ll]ib/")
_OWN_PACKAGE = Path(__file__).resolve().parents[1].as_posix() + "/"


# The frame format of tracebacks and of the stacks that torch stores with a node.
_FRAME = re.compile(
    r'File "(?P<file>[^"]*)", line (?P<line>\d{1,9}), in (?P<function>[^\n]*)\n?(?P<code>[^\n]*)'
)


@dataclass(frozen=True)
class Frame:
    file: str
    line: int
    function: str
    code: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def frames_in(text: str) -> tuple[Frame, ...]:
    """Return the frames of a traceback in Python's own format, outermost first."""
    return tuple(
        Frame(match["file"], int(match["line"]), match["function"].strip(), match["code"].strip())
        for match in _FRAME.finditer(text)
    )


def is_generated(file: str) -> bool:
    return bool(_GENERATED.search(_slashed(file)))


def is_torchs(file: str) -> bool:
    return bool(_TORCH.search(_slashed(file)))


def is_compilers(file: str) -> bool:
    """Check whether a file belongs to Dynamo, AOTAutograd or Inductor."""
    return bool(_COMPILER.search(_slashed(file)))


def is_own(file: str) -> bool:
    """Check whether a file belongs to inductoscope: installed, or in a checkout."""
    place = _slashed(file)
    return place.startswith(_OWN_PACKAGE) or bool(
        re.search(r"/(?:src|site-packages|dist-packages)/inductoscope/", place)
    )


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Check whether a file is the user's: not Python's, not installed, not generated, not ours."""
    place = _slashed(file)
    if not place or place.startswith(("<", *_standard_folders())):
        return False
    is_librarys = _PACKAGES.match(place) or _STANDARD_LIBRARY.search(place) or is_torchs(place)
    return not (is_librarys or is_generated(place) or is_own(place))


def innermost_users(frames: Sequence[T], file: Callable[[T], str]) -> T | None:
    """Return the innermost frame in user code, else the innermost; outermost comes first."""
    own = [frame for frame in frames if is_users(file(frame))]
    return next(reversed(own or list(frames)), None)


def shorten(file: str) -> str:
    """Shorten the path of an installed file to start at its package; keep any other path.

    >>> shorten("/opt/venv/lib/python3.12/site-packages/torch/_inductor/graph.py")
    'torch/_inductor/graph.py'
    """
    packages = _PACKAGES.match(_slashed(file))
    return _slashed(file)[packages.end() :] if packages else file


def arrows(places: Sequence[str]) -> str:
    """Format a stack in one line, outermost frame first, files without their folders.

    >>> arrows(["/home/me/gpt2.py:12", "/venv/transformers/modeling_gpt2.py:702"])
    'gpt2.py:12 → modeling_gpt2.py:702'
    """
    names = [_slashed(place).rpartition("/")[2] for place in places]
    if len(names) > _LONGEST_STACK:
        names = [names[0], "…", *names[2 - _LONGEST_STACK :]]
    return " → ".join(names)


def _slashed(file: str) -> str:
    return file.replace("\\", "/")


def library_folders() -> tuple[str, ...]:
    """Return the local folders that hold no user code: Python's own, and this package."""
    return (*_standard_folders(), _OWN_PACKAGE)


@lru_cache(maxsize=1)
def _standard_folders() -> tuple[str, ...]:
    """Return the folders of this Python's standard library."""
    found = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    # Without duplicates, in the same order in every process.
    return tuple(dict.fromkeys(_slashed(path).rstrip("/") + "/" for path in found if path))
