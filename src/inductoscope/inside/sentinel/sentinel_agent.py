"""Installs the sentinel in a process of the user's program."""

from __future__ import annotations

import functools
import logging
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from inductoscope.doctor.alarm import Alarm
from inductoscope.doctor.instructions import FOLDER, STOPPED
from inductoscope.doctor.sentinel_options import SentinelOptions, options_from
from inductoscope.inside.observe import instead
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.start import InsidePart
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

if TYPE_CHECKING:
    from inductoscope.inside.sentinel.sentinel import Sentinel

OnAlarm = Callable[[Alarm], None]


def sentinel(folder: Path) -> InsidePart:
    """Shadow some calls of compiled graphs."""
    options = options_from()
    place = folder / FOLDER
    place.mkdir(exist_ok=True)
    return InsidePart(hooks=sentinel_hooks(options, place, _stop if options.stop else _go_on))


def _go_on(alarm: Alarm) -> None:
    """Let the program continue; its parent process reports the alarm."""


def log_alarm(alarm: Alarm) -> None:
    """Log an alarm, in a program that started the sentinel itself."""
    logging.getLogger("inductoscope").warning(
        "%s. The call is kept: inductoscope doctor --kept %s SCRIPT [ARGS]",
        alarm.text,
        shlex.quote(alarm.kept),
    )


def _stop(alarm: Alarm) -> None:
    SCOPE.close()
    os._exit(STOPPED)


def sentinel_hooks(options: SentinelOptions, place: Path, on_alarm: OnAlarm) -> tuple[Hook, ...]:
    """Return the hook around Dynamo's backend."""

    @functools.cache
    def sentinel() -> Sentinel:
        from inductoscope.inside.sentinel.sentinel import Sentinel

        return Sentinel(options, place, on_alarm)

    return (
        Hook(
            stage=stages.DYNAMO,
            records="calls of compiled graphs, chosen at random, shadowed in eager and float64",
            wraps=(Wrap(hooked.CALL_USER_COMPILER, instead(lambda: sentinel().compile)),),
        ),
    )
