"""The generated kernel files that exist on this machine.

The paths come from a log, so a file is read only if it is a plain, small one, and never executed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from inductoscope.errors import InductoscopeError
from inductoscope.hangs.choices.suspects import Suspect
from inductoscope.hangs.logs.choice import Choice

if TYPE_CHECKING:
    from inductoscope.kernels.file import KernelFile

_LARGEST = 1 << 20


class KernelFiles:
    """Reads each file once."""

    def __init__(self) -> None:
        self._read: dict[str, KernelFile | None] = {}

    def kernel(self, choice: Choice) -> KernelFile | None:
        """The file of a choice; None if it has none, or it cannot be read."""
        path = choice.path
        if path not in self._read:
            self._read[path] = _try(path) if path.endswith(".py") and _is_plain(path) else None
        return self._read[path]

    def suspect(self, choice: Choice) -> Suspect:
        """A choice with what its file adds. What the log says takes precedence."""
        file = self.kernel(choice)
        if file is None:
            return Suspect(dict(choice.configuration))
        target = file.target
        return Suspect(
            {**file.configuration, **choice.configuration},
            device=target.kind if target else "",
            architecture=str(target.architecture) if target else "",
            pointers=tuple(kind for kind in file.signature.values() if kind.startswith("*")),
            source=file.source,
        )

    def missing(self, choices: Sequence[Choice]) -> tuple[str, ...]:
        """The files of these choices that are not on this machine."""
        paths = dict.fromkeys(choice.path for choice in choices if choice.path)
        return tuple(path for path in paths if not _is_plain(path))


def _try(path: str) -> KernelFile | None:
    from inductoscope.kernels.file import read_kernel_file

    try:
        return read_kernel_file(path)
    except InductoscopeError:
        return None


def _is_plain(path: str) -> bool:
    try:
        return os.path.isfile(path) and os.path.getsize(path) <= _LARGEST
    except (OSError, ValueError):
        return False
