"""The tool's own command line, to be run in a child process."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

# Not `-m inductoscope`: that would import from the folder it is started in, which is the user's.
_START = (
    "import sys; sys.path[:] = [place for place in sys.path if place]; "
    "from inductoscope.cli import main; main()"
)


# They say that a pipe is a terminal, as Jupyter does of what its kernels print.
_COLOURS = ("FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "TTY_INTERACTIVE")


def tool_environment() -> dict[str, str]:
    """The environment for it: what it prints is read line by line, not shown on a terminal."""
    return {name: value for name, value in os.environ.items() if name not in _COLOURS}


def tool_command(words: Sequence[str]) -> list[str]:
    """`inductoscope WORDS`, by the Python that runs this."""
    return [sys.executable, "-c", _START, *words]
