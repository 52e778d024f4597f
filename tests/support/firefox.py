"""Firefox without a driver: the protocol Marionette, which every Firefox speaks, over a socket."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Errors that the page's script caused, as the browser's own console has them.
_ERRORS = """
return Services.console.getMessageArray()
    .filter(one => one instanceof Ci.nsIScriptError && !(one.flags & Ci.nsIScriptError.warningFlag))
    .filter(one => one.sourceName.startsWith("file:"))
    .map(one => one.errorMessage);
"""


class Firefox:
    """One window of a running Firefox."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 60)
        self._number = 0
        self._receive()
        self._ask("WebDriver:NewSession", {"capabilities": {}})

    def visit(self, address: str) -> None:
        """Open an address."""
        self._ask("WebDriver:Navigate", {"url": address})

    def evaluate(self, script: str) -> Any:
        """The value returned by a script that runs in the page."""
        return self._ask("WebDriver:ExecuteScript", {"script": script, "args": []})["value"]

    def errors(self) -> list[str]:
        """Errors in scripts of the page since the browser was started."""
        self._ask("Marionette:SetContext", {"value": "chrome"})
        found: list[str] = self.evaluate(_ERRORS)
        self._ask("Marionette:SetContext", {"value": "content"})
        return found

    def close(self) -> None:
        """Leave the browser alone."""
        self._socket.close()

    def _ask(self, command: str, parameters: dict[str, Any]) -> Any:
        self._number += 1
        text = json.dumps([0, self._number, command, parameters]).encode()
        self._socket.sendall(b"%d:%s" % (len(text), text))
        _, _, error, result = self._receive()
        assert error is None, error
        return result

    def _receive(self) -> Any:
        size = b""
        while not size.endswith(b":"):
            size += self._socket.recv(1)
        left, parts = int(size[:-1]), []
        while left:
            parts.append(self._socket.recv(min(left, 1 << 16)))
            left -= len(parts[-1])
        return json.loads(b"".join(parts))


@contextlib.contextmanager
def started_firefox(executable: str, profile: Path) -> Iterator[Firefox]:
    """A Firefox with a new profile, on a port that it chooses."""
    profile.mkdir()
    (profile / "user.js").write_text('user_pref("marionette.port", 0);\n')
    words = ["--headless", "--marionette", "--remote-allow-system-access", "--no-remote"]
    command = [executable, *words, "--profile", str(profile)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        firefox = Firefox(_port(profile / "MarionetteActivePort"))
        yield firefox
        firefox.close()
    finally:
        process.terminate()
        process.wait(30)


def _port(file: Path, seconds: float = 120.0) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            return int(file.read_text())
        time.sleep(0.1)
    raise TimeoutError("Firefox did not start to listen")
