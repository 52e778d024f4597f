"""Deletes a recording so that it is there whole or not at all, whatever interrupts.

The folder is renamed first, which happens at once or not at all: from then on nobody takes it for a
recording. Its manifest goes last, so that what an interruption leaves can still be told from a
folder of somebody else, and the next deletion removes it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.recording.layout import MANIFEST

_PREFIX = ".deleted-"
_EFFECTIVE = os.access in os.supports_effective_ids


def delete_recording(path: Path) -> None:
    """Delete the recording in `path`; ToolFailure says why it cannot be, and leaves it whole.

    Once begun, it is finished before a Ctrl-C is heard.
    """
    for folder in _folders(path):
        if not os.access(folder, os.W_OK | os.X_OK, effective_ids=_EFFECTIVE):
            raise ToolFailure(
                f"{path} cannot be deleted: {folder} is not writable. "
                f"Allow it first: chmod u+w {shlex.quote(folder)}"
            )
    gone = path.with_name(f"{_PREFIX}{os.getpid()}-{time.time_ns():x}")
    try:
        if path.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "it is a link")
        path.rename(gone)
    except OSError as error:
        raise ToolFailure(
            f"{path} cannot be deleted: {error.strerror}. "
            f"Check that you may write to {path.parent}."
        ) from error
    try:
        finish_deletion(gone)
    except KeyboardInterrupt:
        finish_deletion(gone)
        raise


def leftovers(folder: Path) -> list[Path]:
    """What earlier deletions in `folder` could not finish."""
    found = []
    with contextlib.suppress(OSError):
        found = [path for path in folder.iterdir() if _is_leftover(path)]
    return sorted(found)


def _is_leftover(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return (
            path.name.startswith(_PREFIX)
            and not path.is_symlink()
            and ((path / MANIFEST).is_file() or not any(path.iterdir()))
        )
    return False


def _folders(path: Path) -> Iterator[str]:
    """The folder, the one that it is in, and those in it; links are not followed."""
    yield str(path.parent)
    for folder, _, _ in os.walk(path):
        yield folder


def finish_deletion(gone: Path) -> None:
    """Delete what is left of a recording, its manifest last."""
    try:
        for inside in sorted(gone.iterdir(), key=lambda inside: inside.name == MANIFEST):
            if inside.is_dir() and not inside.is_symlink():
                shutil.rmtree(inside)
            else:
                inside.unlink(missing_ok=True)
        gone.rmdir()
    except FileNotFoundError:
        return  # Somebody else removes it at the same time.
    except OSError as error:
        raise ToolFailure(
            f"{gone} cannot be deleted completely: {error.strerror} ({error.filename}). "
            "Delete what is left by hand."
        ) from error
