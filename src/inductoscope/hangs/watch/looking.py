"""Looks at a process tree closely: stacks, locks and what moved since an earlier sample."""

from __future__ import annotations

import getpass
import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace

from inductoscope.hangs.watch.frames import positions
from inductoscope.hangs.watch.scene import Scene
from inductoscope.processes.locks import (
    FileLock,
    count_tries,
    held_locks,
    who_has_open,
)
from inductoscope.processes.stacks import Stacks, read_stacks, spied_locals
from inductoscope.processes.status import environment_of
from inductoscope.processes.tree import (
    ProcessSample,
    Tree,
    activity,
    sample_tree,
)
from inductoscope.recording.events.compiling import StageStart

# Locals of the functions that wait for a lock, in torch and in the library that it uses.
_LOCK_NAMES = frozenset({"lock_filename", "lock_path", "lock_file", "lockfile", "build_directory"})
_MOST_STACKS = 8
_LOOK_FOR_TRIES = 0.5

Stages = Mapping[int, StageStart | None]


def look(
    root: int, before: Tree, *, stages: Stages | None = None, native: bool = False
) -> Scene | None:
    """The scene at a process now, against an earlier sample of it; None if it is gone."""
    now = sample_tree(root)
    if now.root is None:
        return None
    stacks = read_all_stacks(now, native=native)
    alive = {process.pid for process in now.processes}
    return with_locks(
        Scene(
            tree=now,
            activity=activity(before, now),
            stacks=stacks,
            stages=stages or {},
            lost=[p for p in before.workers if p.pid not in alive],
        )
    )


def read_all_stacks(tree: Tree, *, native: bool = False) -> dict[int, Stacks]:
    """Stacks of the root and of the Python processes below it."""
    found = {}
    for process in _worth_reading(tree)[:_MOST_STACKS]:
        found[process.pid] = read_stacks(process.pid, native=native, is_stopped=process.is_stopped)
    return found


def _worth_reading(tree: Tree) -> list[ProcessSample]:
    others = [p for p in tree.processes[1:] if p.is_python and not p.is_zombie]
    return [*tree.processes[:1], *others]


def with_locks(scene: Scene) -> Scene:
    """The scene with the lock that is waited for, if a lock may be waited for at all."""
    waiting = next(
        (p for s in scene.stacks.values() for p in positions(s) if p.stage == "file-lock"), None
    )
    if waiting is None and scene.main_thread is not None:
        return scene
    named = lock_named(spied_locals(waiting.pid, _LOCK_NAMES)) if waiting is not None else ""
    locks = held_locks()
    if named:
        return replace(scene, locks=locks, wanted_lock=named, lock_openers=who_has_open(named))
    return replace(scene, locks=_with_tries(locks, cache_folders(scene.root.pid)))


def lock_named(found: Mapping[str, str]) -> str:
    """The path of a lock file among local variables."""
    for name in ("lock_filename", "lock_path", "lock_file", "lockfile"):
        if os.path.isabs(found.get(name, "")):
            return found[name]
    folder = found.get("build_directory", "")
    return os.path.join(folder, "lock") if os.path.isabs(folder) else ""


def _with_tries(locks: list[FileLock], folders: list[str]) -> list[FileLock]:
    """How often each lock of the caches is tried. Locks of other caches are of other programs."""
    kernel_knows = [lock for lock in locks if lock.waiters]
    near = [lock for lock in locks if lock.path and _is_in(lock.path, folders)]
    tries = count_tries([lock.path for lock in near], _LOOK_FOR_TRIES) if near else {}
    tried = [replace(lock, tries=tries.get(lock.path, 0)) for lock in near]
    return [*tried, *(lock for lock in kernel_knows if lock not in near)]


def _is_in(path: str, folders: list[str]) -> bool:
    return any(path.startswith(folder.rstrip("/") + "/") for folder in folders)


def cache_folders(pid: int) -> list[str]:
    """Where a process keeps compiled code, going by its environment."""
    environment = environment_of(pid)
    given = environment.get("TORCHINDUCTOR_CACHE_DIR")
    temporary = environment.get("TMPDIR") or tempfile.gettempdir()
    user = environment.get("USER") or getpass.getuser()
    default = os.path.join(temporary, f"torchinductor_{user}")
    extensions = environment.get("TORCH_EXTENSIONS_DIR")
    return [folder for folder in (given, default, extensions) if folder]
