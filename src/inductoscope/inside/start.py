"""Starts the parts of the tool inside a process of the user's program.

A part is data: hooks, work to do when a module is imported, and settings of torch. The environment
names the parts of a process; without names it is recorded. A new part is a line in `PARTS`.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pkgutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.errors import UsageError
from inductoscope.inside import private_cache
from inductoscope.inside.hooks import HOOKS
from inductoscope.inside.install import Installer
from inductoscope.inside.program_settings import set_by_the_tool
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.uncaught import record_uncaught, record_until_exit
from inductoscope.launch.environment import PARTS_VARIABLE, RECORDING_VARIABLE, PartName
from inductoscope.processes.stack_signal import answer_with_stacks
from inductoscope.recording.location import create_recording
from inductoscope.torch_facts.torch_names import Hook

# For each part, the function that makes it; it is given the folder of the recording.
PARTS: dict[PartName, str] = {
    "record": "inductoscope.inside.start:recorder",
    "check": "inductoscope.inside.doctor.checking_agent:checker",
    "sentinel": "inductoscope.inside.sentinel.sentinel_agent:sentinel",
    "values": "inductoscope.inside.doctor.kernel_values_agent:value_saver",
    "pretend": "inductoscope.inside.pretend:pretended_device",
    "rank": "inductoscope.inside.preflight:pretended_rank",
    "call-times": "inductoscope.inside.profiling.agent:call_profiler",
    "kernel-times": "inductoscope.inside.profiling.kernel_clock:kernel_profiler",
    "memory": "inductoscope.inside.profiling.memory_agent:memory_profiler",
    "eager-memory": "inductoscope.inside.profiling.memory_agent:eager_memory_profiler",
    "alternate": "inductoscope.inside.profiling.alternating_calls:alternating_profiler",
}


@dataclass(frozen=True)
class InsidePart:
    """Hooks, work and settings that one part of the tool brings into a process."""

    hooks: tuple[Hook, ...] = ()
    # Maps a module's name to the work to do once it has been imported.
    on_import: Mapping[str, Callable[[], None]] = field(default_factory=dict)
    # Values of torch's settings, by their full names.
    settings: Mapping[str, Any] = field(default_factory=dict)
    # A function to call before the first hook is installed.
    begin: Callable[[], None] = lambda: None


def recorder(folder: Path) -> InsidePart:
    def begin() -> None:
        SCOPE.open(folder)
        record_until_exit()
        answer_with_stacks(folder)

    return InsidePart(hooks=HOOKS, begin=begin)


_started: list[Installer] = []


def start(folder: str) -> Installer:
    """Start the parts that the environment names; called just before torch is imported."""
    if _started:
        return _started[0]  # Another start-up hook of the tool came first.
    names: Any = (os.environ.get(PARTS_VARIABLE) or "record").split(",")
    parts = [
        InsidePart(on_import=private_cache.on_import()),
        *(_made(n, Path(folder)) for n in names),
    ]
    installer = Installer(
        [hook for part in parts for hook in part.hooks], on_import=_joined_work(parts)
    )
    _started.append(installer)
    for part in parts:
        part.begin()
    installer.start()
    return installer


def _made(name: PartName, folder: Path) -> InsidePart:
    part: InsidePart = pkgutil.resolve_name(PARTS[name])(folder)
    return part


def _joined_work(parts: Sequence[InsidePart]) -> dict[str, Callable[[], None]]:
    work: dict[str, list[Callable[[], None]]] = defaultdict(list)
    for part in parts:
        for name, value in part.settings.items():
            work[name.rpartition(".")[0]].append(functools.partial(_set, name, value))
    for part in parts:
        for module, each in part.on_import.items():
            work[module].append(each)
    return {module: functools.partial(_do_all, found) for module, found in work.items()}


def _set(name: str, value: Any) -> None:
    set_by_the_tool(name)
    module, _, setting = name.rpartition(".")
    setattr(sys.modules[module], setting, value)


def _do_all(work: Sequence[Callable[[], None]]) -> None:
    for each in work:
        SCOPE.guard(each)


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
    # Hooks are removed again even if installing them is interrupted.
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
    """Check whether the block was cancelled, which is not a failure."""
    asyncio = sys.modules.get("asyncio")
    cancelled = (asyncio.CancelledError,) if asyncio is not None else ()
    return isinstance(error, (GeneratorExit, *cancelled))


@contextlib.contextmanager
def _installed(hooks: tuple[Hook, ...]) -> Iterator[None]:
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
    """Return how many functions Dynamo has compiled in this process so far; they stay compiled."""
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
