"""Runs in a child process: sets limits, then runs another file in this same process.

    python bounded.py MEMORY_BYTES FILE ARGUMENTS...

Standard input is a pipe that the parent holds and never writes to, so it ends when the parent
does, in whatever way. A small fork waits for that and then ends the whole process group: were it a
thread, a compiler that never gives Python's lock back would keep it from running.
"""

from __future__ import annotations

import os
import resource
import runpy
import signal
import sys

_LARGEST_FILE = 4 << 30


def main() -> None:
    """Run the file that the command line names, bound by the limits."""
    memory, program, *arguments = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
    resource.setrlimit(resource.RLIMIT_AS, (int(memory), int(memory)))
    if os.fork() == 0:
        _guard()
    # The folder of this file is first on the path of a script: its names must not hide others.
    sys.path[:] = [folder for folder in sys.path if folder != os.path.dirname(__file__)]
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


def _guard() -> None:
    os.closerange(1, 256)
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
