"""`inductoscope serve`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click

from inductoscope.cli.parameters import json_option, recording_argument


@click.command("serve")
@recording_argument()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Listen on this port.  [default: any free port]",
)
@json_option("the address")
def command(recording: Path | None, port: int, json_path: str | None) -> None:
    """Serve the page of a recording while the program runs.

    The page updates as the program runs. Only this machine can open it, at an address that cannot
    be guessed. RECORDING defaults to the last one. Stop with Ctrl-C.

    \b
    inductoscope run train.py &
    inductoscope serve
    """
    from inductoscope.errors import UsageError
    from inductoscope.recording.location import last_recording
    from inductoscope.recording.reader import open_recording
    from inductoscope.views.page.live import LiveServer
    from inductoscope.views.report.terminal import write_json

    path = open_recording(recording or last_recording()).path
    try:
        server = LiveServer(path, port)
    except OSError as error:
        raise UsageError(
            f"Cannot listen on --port {port}: {error.strerror}. Try --port 0."
        ) from error
    if json_path:
        write_json({"address": server.address, "recording": str(path)}, json_path)
    if json_path != "-":
        click.echo(f"{server.address}\nserves {path}; stop with Ctrl-C.")
    sys.stdout.flush()
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
