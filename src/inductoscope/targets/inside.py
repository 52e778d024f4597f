"""Starts recording inside a whole program that is to see a device which does not exist.

Everything the program computes is fake from its first tensor on: it has shapes and no values.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from inductoscope.capture import private_cache
from inductoscope.capture.hooks import HOOKS
from inductoscope.capture.install import Installer
from inductoscope.capture.scope import SCOPE
from inductoscope.capture.uncaught import record_until_exit
from inductoscope.kernels.target import Target, parse_target
from inductoscope.processes.stack_signal import answer_with_stacks
from inductoscope.targets.pretending import prepare, take_over
from inductoscope.targets.stand_in import StandIn
from inductoscope.targets.whole_program import make_every_tensor_fake
from inductoscope.vocabulary.pretended_device import asked_in_vain, wants_a_value

TARGET_VARIABLE = "INDUCTOSCOPE_TARGET"
# What the start-up hook imports instead of the recorder alone.
MODULE = "targets.inside"

_KEPT: list[Any] = []


def start(folder: str) -> Installer:
    """Record this process and pretend that the device exists. Called before torch is imported."""
    target = parse_target(os.environ[TARGET_VARIABLE])
    try:
        stand_in = prepare(target)
    except Exception as error:
        _give_up(error)
    on_import = {**private_cache.on_import(), "torch": lambda: _begin(stand_in, target)}
    installer = Installer(HOOKS, on_import=on_import)
    if SCOPE.active:
        return installer
    SCOPE.open(Path(folder))
    installer.start()
    record_until_exit()
    answer_with_stacks(Path(folder))
    return installer


def _begin(stand_in: StandIn, target: Target) -> None:
    """torch has been imported: from now on every tensor is fake."""
    try:
        take_over(stand_in, target)
        _KEPT.append(make_every_tensor_fake())
    except Exception as error:
        _give_up(error)
    sys.excepthook = _say_what_cannot_be_had


def _give_up(error: Exception) -> NoReturn:
    """The program must not run without the pretended device: it would do something else."""
    sys.stderr.write(f"inductoscope: cannot pretend that the device exists: {error}\n")
    sys.stderr.flush()
    os._exit(3)


def _say_what_cannot_be_had(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    sys.__excepthook__(kind, error, trace)
    target = os.environ.get(TARGET_VARIABLE, "")
    if wants_a_value(kind.__name__, str(error)):
        sys.stderr.write(
            f"inductoscope: the program asked for a value that was computed on {target}, but "
            "nothing ran there: with --pretend, tensors have shapes and no values. Everything "
            "compiled so far is recorded. Remove the line that asks (.item(), an 'if' on a "
            "tensor, .numpy()), or run only the part that compiles.\n"
        )
        return
    asked = asked_in_vain(str(error))
    if asked:
        sys.stderr.write(
            f"inductoscope: this is a limit of --pretend, not a fault of the program: torch asked "
            f"for {asked}, which only a real GPU has. Everything compiled so far is recorded.\n"
        )
