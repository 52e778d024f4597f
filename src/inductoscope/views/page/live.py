"""A local web server of the page during a run.

It listens only on the loopback address, behind a random token in the path, answers only GET, and
refuses requests sent to another host name. Another web page in the browser can thus neither guess
the address nor reach it through a host name that it controls.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from inductoscope.errors import InductoscopeError
from inductoscope.model.fold import load
from inductoscope.model.stored_recordings import running_streams
from inductoscope.recording.layout import stream_paths
from inductoscope.views.page.contents import Contents
from inductoscope.views.page.document import asset, compact, head

_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


# The page then requests the real index.
_NOTHING_YET = (
    '<script type="application/json" id="index">'
    '{"schema":1,"live":true,"finished":false}</script>\n'
)


class RecordingGone(InductoscopeError):
    """The recording was deleted or moved while it was served."""


@dataclass
class ServedRecording:
    """A recording that may still grow, and is reloaded after it or its processes have changed."""

    path: Path
    _seen: Mapping[str, int] = field(default_factory=dict)
    _running: frozenset[str] | None = None
    _contents: Contents | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def contents(self) -> Contents:
        with self._lock:
            sizes, running = _sizes(self.path), running_streams(self.path)
            # A folder that is being deleted may still hold some of its streams.
            if not self.path.is_dir() or not self._seen.keys() <= sizes.keys():
                raise RecordingGone(f"The recording {self.path} was deleted or moved.")
            if self._contents is None or (sizes, running) != (self._seen, self._running):
                self._contents = Contents(load(self.path), live=True)
                self._seen, self._running = sizes, running
            return self._contents


def _sizes(path: Path) -> dict[str, int]:
    found = {}
    for file in stream_paths(path):
        with contextlib.suppress(OSError):  # The recording is being deleted.
            found[file.name] = file.lstat().st_size
    return found


class LiveServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, path: Path, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.recording = ServedRecording(path)
        self.token = secrets.token_urlsafe(24)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    server: LiveServer
    server_version = "inductoscope"
    sys_version = ""

    def do_GET(self) -> None:
        name = self._asked_for()
        if name is None:
            self._answer(HTTPStatus.NOT_FOUND, b"not found", "text/plain; charset=utf-8")
        elif name == "":
            self._answer(HTTPStatus.OK, self._page(), "text/html; charset=utf-8")
        else:
            self._answer_data(name)

    def _asked_for(self) -> str | None:
        """Return the path after the token; None if the token or host is wrong."""
        names = {f"127.0.0.1:{self.server.server_port}", f"localhost:{self.server.server_port}"}
        token, _, rest = self.path.removeprefix("/").partition("?")[0].partition("/")
        is_known = secrets.compare_digest(token.encode(), self.server.token.encode())
        return rest if is_known and self.headers.get("Host") in names else None

    def _page(self) -> bytes:
        script = f"<script>{asset('page.js')}</script></body></html>\n"
        opening = head(self.server.recording.path.name, live=True)
        return (opening + _NOTHING_YET + script).encode()

    def _answer_data(self, name: str) -> None:
        try:
            body = self._data(name)
        except RecordingGone as error:
            self._answer(HTTPStatus.GONE, str(error).encode(), "text/plain; charset=utf-8")
        except (OSError, InductoscopeError):
            text = b"cannot read the recording"
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, text, "text/plain; charset=utf-8")
        else:
            status = HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK
            self._answer(status, body or b"null", "application/json")

    def _data(self, name: str) -> bytes | None:
        found = self.server.recording.contents()
        kind, _, chunk = name.partition("/")
        if name == "index.json":
            return compact(found.index)
        return compact(found.chunks[chunk]()) if kind == "chunk" and chunk in found.chunks else None

    def _answer(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for header, value in {**_HEADERS, "Content-Type": kind}.items():
            self.send_header(header, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Suppress logging, since the address holds the token."""
