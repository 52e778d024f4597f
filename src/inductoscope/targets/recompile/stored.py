"""The recording for a target that belongs to a recording: made once, then kept.

It is kept in a folder of the user's own, under a digest of everything that it depends on: what is
inside of a recording may be a stranger's, and a recording may be read-only, or grow.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.kernels.target import Target
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.target import recording_target
from inductoscope.recording.layout import MANIFEST
from inductoscope.recording.location import recordings_folder
from inductoscope.targets.recompile.running import RecompileLimits, recompile
from inductoscope.targets.recompile.work_list import Order, captured_graphs
from inductoscope.version import __version__

FOLDER = ".targets"
# Results that are kept; the oldest make room.
_MOST_KEPT = 32


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
    kept = recordings_folder() / FOLDER / _digest(recording, target)
    if _is_whole(kept):
        return kept.resolve()
    say(f"compiling for {target}")
    with _new_folder(kept.parent) as folder:
        made = recompile(
            recording,
            target=target,
            settings={},
            into=folder,
            limits=limits,
            made_with=versions(),
            say=say,
        )
    return _keep(made, kept) if _is_whole(made) else made


def _digest(recording: Recording, target: Target) -> str:
    """A digest of everything the result depends on: graphs, device, versions."""
    order = Order(tuple(captured_graphs(recording)), {}, str(target), machine_code=True)
    text = json.dumps([order.to_json(), versions()], sort_keys=True)
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16)
    return f"{str(target).replace(':', '_')}-{digest.hexdigest()}"


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


def _is_whole(folder: Path) -> bool:
    """Whether it finished by itself."""
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("came_to_its_end") is True


@contextlib.contextmanager
def _new_folder(place: Path) -> Iterator[Path]:
    """An empty folder to keep the result in, or a temporary one; removed on failure."""
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = Path(tempfile.mkdtemp(prefix="result-", dir=place))
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="inductoscope-target-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _keep(made: Path, kept: Path) -> Path:
    """Link the name to the result, which contains its own paths and so cannot move."""
    if made.parent == kept.parent:
        link = made.with_name(f"{made.name}-link")
        with contextlib.suppress(OSError):
            link.symlink_to(made.name)
            link.replace(kept)
        _make_room(kept.parent)
    return made


def _make_room(place: Path) -> None:
    """Remove the oldest results and dangling links."""
    with contextlib.suppress(OSError):
        found = [path for path in place.iterdir() if not path.is_symlink()]
        found.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        for old in found[_MOST_KEPT:]:
            shutil.rmtree(old, ignore_errors=True)
        for link in place.iterdir():
            if link.is_symlink() and not link.exists():
                link.unlink(missing_ok=True)
