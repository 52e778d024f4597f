"""Starts the scope inside a process of the recorded program."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from inductoscope.errors import UsageError
from inductoscope.inside import private_cache
from inductoscope.inside.hooks import HOOKS
from inductoscope.inside.install import Installer
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.uncaught import record_uncaught, record_until_exit
from inductoscope.launch.environment import RECORDING_VARIABLE
from inductoscope.processes.stack_signal import answer_with_stacks
from inductoscope.recording.location import create_recording
from inductoscope.torch_facts.torch_names import Hook


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


# --- Recording from inside a program or a notebook: `with inductoscope.record() as recording:` ----

MoreHooks = Callable[[Path], tuple[Hook, ...]]


@contextlib.contextmanager
def recorded(
    *, output: Path | None, fresh: bool, more_hooks: MoreHooks | None = None
) -> Iterator[Path]:
    """Record what this process compiles inside the block, and yield the recording's folder.

    Afterwards torch is as it was. Inside `inductoscope run` the recording of the run is used.
    `more_hooks` takes the folder.
    """
    if SCOPE.active:
        folder = _recording_in_use(output)
        with _installed(more_hooks(folder)) if more_hooks else contextlib.nullcontext():
            yield folder
        return
    command = [str(word) for word in getattr(sys, "orig_argv", sys.argv)]
    before = _compiled_before()
    folder = create_recording(
        command, output=output, fresh=fresh, inside=True, compiled_before=before
    )
    installer = Installer((*HOOKS, *(more_hooks(folder) if more_hooks else ())))
    # From the first hook on, whatever interrupts this takes all of them out again.
    try:
        SCOPE.open(folder)
        installer.start()
        with _private_cache(folder) if fresh else contextlib.nullcontext():
            yield folder
    except BaseException as error:
        if not _is_cancellation(error):
            SCOPE.guard(record_uncaught, error, error.__traceback__)
        raise
    finally:
        installer.stop()
        SCOPE.close()


def _is_cancellation(error: BaseException) -> bool:
    """Whether the block was left because its result is not wanted any more: nothing failed."""
    asyncio = sys.modules.get("asyncio")
    cancelled = (asyncio.CancelledError,) if asyncio is not None else ()
    return isinstance(error, (GeneratorExit, *cancelled))


@contextlib.contextmanager
def _installed(hooks: tuple[Hook, ...]) -> Iterator[None]:
    """Hooks beside those of the recording in use, for a while."""
    installer = Installer(hooks)
    installer.start()
    try:
        yield
    finally:
        installer.stop()


def _recording_in_use(output: Path | None) -> Path:
    running = os.environ.get(RECORDING_VARIABLE)
    if running is None or output is not None:
        raise UsageError(
            "This process is already being recorded. End that recording first, or omit the "
            "output folder to use it."
        )
    return Path(running)


def _compiled_before() -> int:
    """How many functions Dynamo has compiled in this process so far: they stay compiled."""
    dynamo = sys.modules.get("torch._dynamo.convert_frame")
    seen = getattr(getattr(dynamo, "output_codes", None), "seen", ())
    return len({reference() for reference in seen} - {None})


def _private_cache(folder: Path) -> contextlib.AbstractContextManager[object]:
    from torch._inductor.utils import fresh_cache

    (folder / "cache").mkdir()
    cache: contextlib.AbstractContextManager[object] = fresh_cache(
        dir=str(folder / "cache"), delete=False
    )
    return cache
