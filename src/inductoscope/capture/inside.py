"""Starts the scope inside a process of the recorded program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from inductoscope.capture import private_cache
from inductoscope.capture.hooks import HOOKS
from inductoscope.capture.install import Installer
from inductoscope.capture.scope import SCOPE
from inductoscope.capture.uncaught import record_until_exit
from inductoscope.processes.stack_signal import answer_with_stacks


def start(folder: str, *, on_import: dict[str, Callable[[], None]] | None = None) -> Installer:
    """Record this process, and those that it forks, into `folder`. Called on import of torch.

    `on_import` names what else to do once modules are imported.
    """
    installer = Installer(HOOKS, on_import={**private_cache.on_import(), **(on_import or {})})
    if SCOPE.active:
        return installer  # Another of our start-up hooks came first.
    SCOPE.open(Path(folder))
    installer.start()
    record_until_exit()
    answer_with_stacks(Path(folder))
    return installer
