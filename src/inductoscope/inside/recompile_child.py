"""Runs in a child process: compiles the graphs of an order and reports the outcome of each.

    python bounded.py LIMITS file child.py ORDER EVENTS_FD

The scope is inside this process, as in a recorded program, and writes the new recording.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Compile what the command line names."""
    order_path, events = sys.argv[1:3]
    say = _speaker(int(events))
    from inductoscope.targets.work_list import order_from

    order = order_from(Path(order_path).read_text("utf-8"))
    try:
        devices = _prepare(order)
    except Exception as error:
        say("error", message=f"{type(error).__name__}: {error}"[:1000])
        raise
    from inductoscope.inside.confinement import stay_inside
    from inductoscope.inside.recompiling import compile_graph

    stay_inside(own_folders())
    say("start", stage="preparation")
    for number, graph in enumerate(order.graphs):
        say("graph-start", number=number, compile=graph.compile)
        result = compile_graph(graph, order.settings, devices)
        say("graph", number=number, compile=graph.compile, **result)
    say("done")


def own_folders() -> list[str]:
    """Where this process may write: its recording, its caches, its temporary files."""
    names = ("INDUCTOSCOPE_RECORDING", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TMPDIR")
    return [os.environ[name] for name in names if os.environ.get(name)]


def _speaker(events: int) -> Any:
    def say(event: str, **more: Any) -> None:
        line = json.dumps({"event": event, "at": time.monotonic(), **more}, default=str)
        os.write(events, line.encode() + b"\n")

    return say


def _prepare(order: Any) -> dict[str, str]:
    """Load torch, with a pretended device if one is asked for."""
    devices: dict[str, str] = {}
    if order.target:
        from inductoscope.inside import pretend
        from inductoscope.torch_facts.gpu_targets import parse_target

        pretend.pretend(parse_target(order.target), machine_code=order.machine_code)
        devices = pretend.devices_for_graphs(order.graphs)
    import torch  # noqa: F401  (the scope begins)

    from inductoscope.inside import recompiling

    recompiling.write_cpp_only()
    if not order.target:
        recompiling.time_nothing()
    return devices


if __name__ == "__main__":
    main()
