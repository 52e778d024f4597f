"""The folder of recordings: finding, creating and discarding recordings in it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UnreadableRecording, UsageError, unwritable
from inductoscope.recording.layout import MANIFEST, SCHEMA, STREAMS
from inductoscope.recording.privacy import HIDDEN, storable, without_secrets
from inductoscope.version import __version__

# Set to keep recordings elsewhere, for instance on a larger disk.
FOLDER_VARIABLE = "INDUCTOSCOPE_RECORDINGS"


def recordings_folder() -> Path:
    """Return the folder that holds all recordings made without --output."""
    chosen = os.environ.get(FOLDER_VARIABLE)
    if chosen:
        return Path(chosen).absolute()
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "inductoscope" / "recordings"


def all_recordings() -> list[Path]:
    """Return all recordings in the folder, oldest first."""
    folder = recordings_folder()
    try:
        found = [path for path in folder.iterdir() if _is_recording(path)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UnreadableRecording(
            f"The folder of recordings, {folder}, cannot be read: {error.strerror}. "
            f"Name another one with {FOLDER_VARIABLE}."
        ) from error
    return sorted(found, key=_age)


def _is_recording(path: Path) -> bool:
    """Check for a manifest; hidden folders hold caches or leftovers, never recordings."""
    try:
        return not path.name.startswith(".") and (path / MANIFEST).is_file()
    except OSError:
        return False


def _age(recording: Path) -> tuple[str, float]:
    """Return the sort key of a recording: the second in its name, then the manifest's mtime."""
    second = recording.name[: len("20260131-235959")]
    try:
        return second, (recording / MANIFEST).stat().st_mtime
    except OSError:
        return second, 0.0


def last_recording() -> Path:
    found = all_recordings()
    if not found:
        raise UnreadableRecording(
            f"There is no recording in {recordings_folder()} yet. "
            "Make one with 'inductoscope run SCRIPT'."
        )
    return found[-1]


def command_of(recording: Path) -> list[str]:
    """Return the recorded command, for a rerun in the same working directory."""
    try:
        manifest = json.loads((recording / MANIFEST).read_text("utf-8"))
        command, folder = [str(word) for word in manifest["command"]], str(manifest["cwd"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableRecording(
            f"{recording} does not name the command that it recorded."
        ) from error
    if folder != _working_directory():
        raise UsageError(f"The program was started in {folder}. Change to that folder first.")
    if HIDDEN in " ".join(command):
        raise UsageError(
            "The command holds secrets, which are not recorded. Repeat the command after --resume."
        )
    return command


def create_recording(command: Sequence[str], *, output: Path | None = None, **details: Any) -> Path:
    """Create the folder and manifest of a new recording of `command`; return its path."""
    path = _new_folder(command) if output is None else _chosen_folder(output)
    manifest = {
        "schema": SCHEMA,
        "tool": f"inductoscope {__version__}",
        "created": time.time(),
        "machine": this_machine(),
        "command": without_secrets(command),
        "cwd": _working_directory(),
        "environment": storable(os.environ),
        **details,
    }
    try:
        (path / STREAMS).mkdir(exist_ok=True)
        unfinished = path / (MANIFEST + ".new")
        unfinished.write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
        unfinished.replace(path / MANIFEST)
    except OSError as error:
        raise ToolFailure(
            f"The recording cannot be written to {path}: {error.strerror}. "
            "Choose another place with --output."
        ) from error
    return path


def discard_recording(path: Path) -> None:
    """Remove a recording whose command could not start, so that it is not the last recording.

    A recording with events stays, and so does a folder that the user chose, which may have existed
    before.
    """
    if any((path / STREAMS).glob("*")):
        return
    for inside in path.iterdir():
        if inside.is_dir() and not inside.is_symlink():
            shutil.rmtree(inside, ignore_errors=True)
        else:
            inside.unlink(missing_ok=True)
    if path.parent == recordings_folder():
        path.rmdir()


def this_machine() -> str:
    """Return an anonymous id of this machine and pid namespace, where pids are comparable."""
    seen = []
    with contextlib.suppress(OSError):
        seen = [
            Path("/proc/sys/kernel/random/boot_id").read_text(),
            os.readlink("/proc/self/ns/pid"),
        ]
    return hashlib.blake2b("".join(seen).encode(), digest_size=8).hexdigest() if seen else ""


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""


def _new_folder(command: Sequence[str]) -> Path:
    base = f"{time.strftime('%Y%m%d-%H%M%S')}-{_short_name(command)}"
    for attempt in range(1000):
        path = recordings_folder() / (base if attempt == 0 else f"{base}-{attempt}")
        try:
            path.mkdir(parents=True, mode=0o700)
        except FileExistsError:
            continue
        except OSError as error:
            raise ToolFailure(
                f"The folder {path} cannot be created: {error.strerror}. "
                f"Choose another place with --output or {FOLDER_VARIABLE}."
            ) from error
        return path
    raise ToolFailure(f"No free name for a recording like {base} in {recordings_folder()}.")


def _chosen_folder(output: Path) -> Path:
    output = output.resolve()
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UsageError(f"{output} exists and is not an empty folder. Choose another --output.")
    try:
        output.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise unwritable(output, error) from error
    return output


def _short_name(command: Sequence[str]) -> str:
    words = [word for word in command if not word.startswith("-")]
    scripts = [word for word in words if word.endswith(".py")]
    chosen = (scripts or words[-1:] or ["recording"])[0]
    name = Path(chosen).name.removesuffix(".py")
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name)[:40] or "recording"
