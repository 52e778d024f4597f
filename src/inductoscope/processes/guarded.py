"""A command in a process group of its own that ends with the call that started it.

However the call ends, nothing of the command is left: not if it is cancelled, and not if this
process is killed.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from inductoscope.processes.descendants import end_what_is_left, processes_below
from inductoscope.processes.ending import end_child

_LOOK_EVERY = 0.25  # seconds
_AT_ONCE = 65_536
_BOUNDED = str(Path(__file__).with_name("bounded.py"))


class GuardedCommand:
    """Starts a command with both outputs in pipes and nothing to read."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, environment: Mapping[str, str]
    ) -> None:
        reading, self._held = os.pipe()
        try:
            # A process between them does what must be done in it: see guard.py.
            self.child = subprocess.Popen(
                [sys.executable, "-I", "-S", _BOUNDED, "{}", "guarded", str(reading), *command],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(reading,),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._held)
            raise
        finally:
            os.close(reading)

    def lines(self) -> Iterator[str]:
        """What it writes to standard error, line by line, until it ends. Other output is dropped.

        Processes that it leaves behind may still have the pipes open: they are not waited for.
        """
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        said, rest = self.child.stderr.fileno(), b""
        open_pipes = {said, self.child.stdout.fileno()}
        while open_pipes:
            ended = self.child.poll() is not None
            ready = select.select(open_pipes, [], [], 0.0 if ended else _LOOK_EVERY)[0]
            if ended and not ready:
                break
            for pipe in ready:
                data = os.read(pipe, _AT_ONCE)
                if not data:
                    open_pipes.discard(pipe)
                elif pipe == said:
                    *whole, rest = (rest + data).split(b"\n")
                    yield from (line.decode("utf-8", "replace") for line in whole)
        if rest:
            yield rest.decode("utf-8", "replace")

    def end(self, *, grace: float) -> int:
        """End what is left of it, and return its exit code. While it runs it gets the grace."""
        running = self.child.poll() is None
        left = processes_below(self.child.pid)
        code = end_child(self.child, grace=grace if running else 0.0)
        end_what_is_left(left, grace=grace)
        os.close(self._held)
        return code
