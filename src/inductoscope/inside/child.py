"""Runs in a child process: sets limits, then runs a Python file here, or becomes a program.

    python bounded.py LIMITS file FILE ARGUMENTS...
    python bounded.py LIMITS program PROGRAM ARGUMENTS...
    python bounded.py LIMITS guarded DESCRIPTOR PROGRAM ARGUMENTS...

LIMITS is JSON, the keywords of `limit_resources`.

For a file, standard input is a pipe that the parent holds and never writes to, so it ends when the
parent does, for whatever reason. A small fork waits for that and then ends the whole process group.
A thread could not: a compiler that never gives Python's lock back would keep it from running.

A guarded program has this process as its parent, and so has what it leaves behind: see guard.py.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import sys


def main() -> None:
    """Run what the command line names, bound by the limits."""
    limits, kind, name, *arguments = sys.argv[1:]
    _limit(json.loads(limits), alone=kind == "program")
    if kind == "guarded":
        _guarded(int(name), arguments)
    if kind == "program":
        # Python ignores the signal of a file that gets too large, and so would the program.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execvp(name, [name, *arguments])
    if os.fork() == 0:
        _guard()
    # The folder of this file is first on the path of a script: its names must not hide others.
    sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(__file__)]
    sys.argv = [name, *arguments]
    runpy.run_path(name, run_name="__main__")


# The package may be on the path of the parent alone.
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def _limit(limits: dict[str, int], *, alone: bool) -> None:
    sys.path.insert(0, _ROOT)
    from inductoscope.processes.limits import die_with_parent, limit_resources

    sys.path.remove(_ROOT)
    if alone:
        die_with_parent()
    limit_resources(**limits)


def _guarded(descriptor: int, command: list[str]) -> None:
    sys.path.insert(0, _ROOT)
    from inductoscope.inside.guard import run_guarded

    run_guarded(descriptor, command)


def _guard() -> None:
    os.closerange(1, 256)
    while os.read(0, 1):
        pass
    os.kill(0, signal.SIGKILL)  # Everything in its own process group.


if __name__ == "__main__":
    main()
