"""`show --runnable`: a recorded graph as a script on disk."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from inductoscope.doctor.graph_script import find_graph, write_script
from inductoscope.errors import unwritable
from inductoscope.model.entities import Recording
from inductoscope.model.fx import read_graph
from inductoscope.views.report.terminal import Printer

View = dict[str, Any]


def runnable_view(recording: Recording, name: str, target: str) -> View:
    """Write the script and return its path; for '-', return its text instead."""
    found = find_graph(recording, name)
    script = write_script(found, read_graph(recording, found.digest))
    if target == "-":
        return {"graph": found.name, "path": None, "script": script}
    # The name comes from the recording, so nothing in it may lead out of this folder.
    name = re.sub(r"[^\w.#-]", "_", found.name)
    path = Path(target or f"graph_{name}.py").absolute()
    try:
        path.write_text(script, "utf-8", "backslashreplace")
    except OSError as error:
        raise unwritable(path, error) from error
    return {"graph": found.name, "path": str(path), "script": script}


def print_runnable(printer: Printer, view: View) -> None:
    if view["path"] is None:
        printer.code(view["script"], indent=0)
    else:
        printer.line(f"{view['graph']} written to {view['path']}")
        printer.line(
            "It makes inputs of the recorded shapes, runs the graph in eager and compiled,"
        )
        printer.line("and compares the two.")
