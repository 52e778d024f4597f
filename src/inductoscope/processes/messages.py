"""Whole messages over a connection between two processes."""

from __future__ import annotations

import socket

_SIZE = 8  # bytes that say how long a message is


def send_message(connection: socket.socket, data: bytes) -> None:
    """Write one message."""
    connection.sendall(len(data).to_bytes(_SIZE, "little") + data)


def receive_message(connection: socket.socket) -> bytes:
    """Read one message; `ConnectionError` if the other side has ended."""
    return _exactly(connection, int.from_bytes(_exactly(connection, _SIZE), "little"))


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = connection.recv(min(size - len(data), 1 << 20))
        if not more:
            raise ConnectionError("it has ended")
        data += more
    return bytes(data)
