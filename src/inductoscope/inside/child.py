"""Runs in a child process: calls one function of the tool, under limits.

    python child.py REQUESTS EVENTS

Both are file descriptors of pipes with JSON, one message a line. The first request says what to
call, with what, and under which limits; `processes.children` writes it. The function gets the
`Channel` and reports through it. The last event is `done`, or `error` with what was raised.

The request pipe reaches EOF when the parent ends, for whatever reason. A small fork waits for that
and then kills the whole process group. A thread would not do: a compiler that never releases the
GIL would keep it from running.

Any Python may run this file. It loads the package from its own location, so that other packages
installed next to it are not importable.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pkgutil
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_LONGEST_MESSAGE = 20_000


class Channel:
    """The child's end of both pipes."""

    def __init__(self, requests: int, events: int) -> None:
        self.descriptors: tuple[int, ...] = (requests, events)
        for descriptor in self.descriptors:
            os.set_inheritable(descriptor, False)
        # Yields requests as they arrive, until the parent closes the pipe.
        self.requests = self._incoming()

    def say(self, event: str, **facts: Any) -> None:
        if not self.descriptors:
            return
        line = json.dumps({"event": event, "at": time.monotonic(), **facts}, default=str)
        os.write(self.descriptors[1], line.encode() + b"\n")

    def ready(self) -> None:
        """Report that everything is loaded, which starts the time limit."""
        self.say("ready")

    def _incoming(self) -> Iterator[Any]:
        rest = b""
        while data := os.read(self.descriptors[0], 1 << 16):
            *whole, rest = (rest + data).split(b"\n")
            yield from map(json.loads, whole)

    def close(self) -> None:
        """Close both pipes; called in a fork that no longer reports to the parent."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = ()


def main() -> None:
    # Python puts the folder of a script first on the path; its modules must not shadow others.
    sys.path[:] = [place for place in sys.path if place != os.path.dirname(__file__)]
    channel = Channel(*map(int, sys.argv[1:3]))
    order = next(channel.requests)
    _load("inductoscope.processes.limits:limit_resources")(**order["limits"])
    if order["ends_group"] and os.fork() == 0:
        _end_group_with_parent(channel)
    try:
        _load(order["function"])(channel, **order["given"])
    except SystemExit:
        raise
    except BaseException as error:
        channel.say("error", kind=type(error).__name__, message=_message(error))
        raise
    channel.say("done")


def _load(name: str) -> Callable[..., None]:
    if "inductoscope" not in sys.modules:
        spec: Any = importlib.util.spec_from_file_location(
            "inductoscope",
            os.path.join(_PACKAGE, "__init__.py"),
            submodule_search_locations=[_PACKAGE],
        )
        package = sys.modules["inductoscope"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    found: Callable[..., None] = pkgutil.resolve_name(name)
    return found


def _end_group_with_parent(channel: Channel) -> None:
    requests, events = channel.descriptors
    os.dup2(requests, 0)
    os.closerange(1, max(events, requests, 256) + 1)
    ended = select.poll()
    ended.register(0, 0)  # Only waits for end of file: the requests are for the function.
    ended.poll()
    os.kill(0, signal.SIGKILL)  # Kills its whole process group.


def _message(error: BaseException) -> str:
    text = str(error) or repr(error)
    cause = error.__cause__ or error.__context__
    if cause is not None and str(cause) and str(cause) not in text:
        text += f"\n{type(cause).__name__}: {cause}"
    return text[-_LONGEST_MESSAGE:]


if __name__ == "__main__":
    main()
