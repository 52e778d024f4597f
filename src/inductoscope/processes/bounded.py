"""Runs in a child process: sets limits, then runs a Python file here, or becomes a program.

    python bounded.py LIMITS file FILE ARGUMENTS...
    python bounded.py LIMITS program PROGRAM ARGUMENTS...

LIMITS is JSON, the keywords of `limit_resources`.

For a file, standard input is a pipe that the parent holds and never writes to, so it ends when the
parent does, for whatever reason. A small fork waits for that and then ends the whole process group.
A thread could not: a compiler that never gives Python's lock back would keep it from running.
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


def _limit(limits: dict[str, int], *, alone: bool) -> None:
    # The package may be on the path of the parent alone.
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, root)
    from inductoscope.processes.own_limits import die_with_parent, limit_resources

    sys.path.remove(root)
    if alone:
        die_with_parent()
    limit_resources(**limits)


def _guard() -> None:
    os.closerange(1, 256)
    while os.read(0, 1):
        pass
    os.kill(0, signal.SIGKILL)  # Everything in its own process group.


if __name__ == "__main__":
    main()
