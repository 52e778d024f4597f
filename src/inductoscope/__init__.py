"""inductoscope: a debugger for Inductor, the default compiler behind torch.compile.

with inductoscope.record() as recording:
    torch.compile(model)(x)
recording.show(op="relu")

inductoscope.assert_same(function, x)

In a notebook: %load_ext inductoscope, then %%inductoscope at the top of a cell.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from inductoscope.version import __version__

if TYPE_CHECKING:
    from inductoscope.api import (
        LiveRecording,
        LiveSentinel,
        assert_same,
        check,
        open_recording,
        record,
        sentinel,
    )

__all__ = [
    "LiveRecording",
    "LiveSentinel",
    "__version__",
    "assert_same",
    "check",
    "open_recording",
    "record",
    "sentinel",
]


def __getattr__(name: str) -> Any:
    # Loaded on demand: the package is also imported inside every recorded process, at start-up.
    if name in __all__:
        return getattr(importlib.import_module("inductoscope.api"), name)
    raise AttributeError(f"module 'inductoscope' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext inductoscope`."""
    importlib.import_module("inductoscope.notebook.magic").register(shell)


def unload_ipython_extension(shell: Any) -> None:
    """`%unload_ext inductoscope`."""
    importlib.import_module("inductoscope.notebook.magic").unregister(shell)
