"""Ends the program once a failure in it has been investigated, here or in a copy of it."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.failure import Failure
from inductoscope.doctor.handover import Found, read_found, say, write_found
from inductoscope.doctor.inside.investigate import investigate
from inductoscope.doctor.inside.lost_device import is_device_lost
from inductoscope.doctor.inside.program_copy import program_copy
from inductoscope.doctor.instructions import INVESTIGATING, STOPPED, Instructions
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.forks import can_fork
from inductoscope.errors import ToolFailure
from inductoscope.processes.status import is_alive


def investigate_and_stop(
    candidate: Candidate, failure: Failure, found: Found, place: Path, instructions: Instructions
) -> NoReturn:
    """Investigate, write the findings, and end the program."""
    _wait_for_others(place)
    try:
        say(place, f"found: {failure.text.partition(chr(10))[0]}")
        write_found(found, place)
        found = _investigated(candidate, failure, found, place, instructions)
    except BaseException:
        found.notes.append("".join(traceback.format_exc())[-3000:])
    stop_with(found, place)


def _investigated(
    candidate: Candidate, failure: Failure, found: Found, place: Path, instructions: Instructions
) -> Found:
    """Here, or in the copy of a program that uses a GPU and so cannot be forked."""
    arguments = (candidate, failure, found, place, instructions)
    copy = None if can_fork() else program_copy()
    if copy is None:
        return found if is_device_lost() else investigate(*arguments)
    try:
        done: Found = copy.run(investigate, *arguments, place=place)
        return done
    except ToolFailure as error:
        found = read_found(place) or found
        if not found.reproduces and not is_device_lost():
            found = investigate(candidate, failure, found, place, instructions)
        found.notes.insert(0, str(error))
        return found


def stop_with(found: Found, place: Path) -> NoReturn:
    """Write the findings, and end the program."""
    write_found(found, place)
    SCOPE.close()
    os._exit(STOPPED)


def describe_own_process() -> str:
    """Which of the program's processes this is."""
    rank = os.environ.get("RANK")
    if rank is not None:
        return f"rank {rank} of {os.environ.get('WORLD_SIZE', '?')}"
    return os.path.basename(sys.argv[0])


def _wait_for_others(place: Path) -> None:
    """One process investigates. Others that find something wait until it is done.

    If they continued or ended, their launcher could end all of them.
    """
    mark = place / INVESTIGATING
    try:
        with mark.open("x") as file:
            file.write(str(os.getpid()))
        return
    except FileExistsError:
        pass
    except OSError:
        return
    while is_alive(int(mark.read_text() or os.getpid())):
        time.sleep(0.5)
    os._exit(STOPPED)
