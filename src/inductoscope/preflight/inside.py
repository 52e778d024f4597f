"""Starts inside the user's process, in place of the recorder: see `capture/bootstrap`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from inductoscope.capture import private_cache
from inductoscope.capture.install import Installer
from inductoscope.preflight import fake_group

# What the start-up hook imports.
MODULE = "preflight.inside"
TARGET_VARIABLE = "INDUCTOSCOPE_TARGET"
_KEPT: list[Any] = []


def start(folder: str) -> Installer:
    """Pretend to be one rank of a job. Called before torch is imported."""
    on_import = {
        **private_cache.on_import(),
        fake_group.MODULE: lambda: _or_give_up(lambda: fake_group.pretend_group(Path(folder))),
    }
    target = os.environ.get(TARGET_VARIABLE)
    if target:
        on_import["torch"] = _device(target)
    installer = Installer((), on_import=on_import)
    installer.start()
    return installer


def _device(target: str) -> Any:
    from inductoscope.kernels.target import parse_target
    from inductoscope.targets.pretending import prepare, take_over
    from inductoscope.targets.several_devices import pretend_devices
    from inductoscope.targets.whole_program import make_every_tensor_fake

    wanted = parse_target(target)
    stand_in = prepare(wanted)

    def begin() -> None:
        take_over(stand_in, wanted)
        pretend_devices(stand_in, int(os.environ["LOCAL_WORLD_SIZE"]))
        _KEPT.append(make_every_tensor_fake())

    return lambda: _or_give_up(begin)


def _or_give_up(work: Any) -> None:
    """The program must not run as something else: with a real group it would wait for others."""
    try:
        work()
    except Exception as error:
        _give_up(error)


def _give_up(error: Exception) -> NoReturn:
    sys.stderr.write(
        f"inductoscope: cannot pretend to be a rank: {type(error).__name__}: {error}\n"
    )
    sys.stderr.flush()
    os._exit(3)
