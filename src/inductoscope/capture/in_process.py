"""Recording from inside a program or a notebook: `with inductoscope.record() as recording:`."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from inductoscope.capture.hooks import HOOKS
from inductoscope.capture.install import Installer
from inductoscope.capture.scope import SCOPE
from inductoscope.capture.scope_variables import RECORDING_VARIABLE
from inductoscope.capture.uncaught import record_uncaught
from inductoscope.errors import UsageError
from inductoscope.recording.location import create_recording
from inductoscope.vocabulary.torch_names import Hook

TORCH_NAMES = {
    "torch._dynamo.convert_frame": ("output_codes",),
    "torch._inductor.utils": ("fresh_cache",),
}


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
