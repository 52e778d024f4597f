"""The recording for a target that belongs to a recording: made once, kept inside of it."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.kernels.target import Target
from inductoscope.model.fold import load
from inductoscope.model.target import recording_target
from inductoscope.recompile.session import RecompileLimits, recompile
from inductoscope.recording.layout import MANIFEST
from inductoscope.version import __version__

FOLDER = "targets"


def recording_for_target(
    path: Path,
    target: Target,
    *,
    limits: RecompileLimits | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """The graphs of the recording in `path`, compiled for `target`: kept, or made now."""
    recording = load(path)
    already = recording_target(recording)
    if already == str(target):
        return path
    if already:
        raise UsageError(f"{path} is itself compiled for {already}. Give the recording of the run.")
    made_with = versions()
    kept = path / FOLDER / str(target).replace(":", "_")
    if _is_whole(kept, made_with):
        return kept
    into = _place(kept)
    say(f"compiling for {target}")
    return recompile(
        recording,
        target=target,
        settings={},
        into=into,
        limits=limits,
        made_with=made_with,
        say=say,
    )


def versions() -> dict[str, str]:
    """What the result depends on besides the recording."""
    return {
        "inductoscope": __version__,
        **{name: _version(name) for name in ("torch", "triton")},
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_whole(folder: Path, made_with: dict[str, str]) -> bool:
    """Whether it came to its end, with the versions that are installed now."""
    if folder.is_symlink():
        return False
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    if not isinstance(manifest, dict):
        return False
    return "left_out" in manifest and manifest.get("made_with") == made_with


def _place(kept: Path) -> Path:
    """An empty folder for it: inside of the recording, or elsewhere where that is read-only."""
    if kept.is_symlink() or kept.parent.is_symlink():
        raise ToolFailure(f"{kept} is a link, which no recording has. It is left alone.")
    try:
        if kept.is_dir():
            shutil.rmtree(kept)
        kept.mkdir(parents=True, mode=0o700)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="inductoscope-target-"))
    return kept
