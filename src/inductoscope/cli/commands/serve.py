"""`inductoscope serve`."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import click


@click.command("serve")
@click.argument("recording", required=False, type=click.Path(path_type=Path))
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any free one.")
@click.option("--json", "json_path", metavar="PATH", help="Write the address as JSON.")
def command(recording: Path | None, port: int, json_path: str | None) -> None:
    """Show the page of a recording while the run goes on.

    Without RECORDING it is the last one that was made. The page is served to this machine alone,
    under an address that cannot be guessed, and follows what the program adds. Ctrl-C ends it.

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
        raise UsageError(f"Port {port} cannot be had: {error.strerror}. Try --port 0.") from error
    if json_path:
        write_json({"address": server.address, "recording": str(path)}, json_path)
    if json_path != "-":
        click.echo(f"{server.address}\nshows {path}; Ctrl-C ends it.")
    sys.stdout.flush()
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
