"""Compiles the graphs of a recording again, in a child process, into another recording."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inductoscope.capture.launch import environment_for, record_ending
from inductoscope.capture.scope import describe_launcher
from inductoscope.errors import ToolFailure
from inductoscope.kernels.target import Target
from inductoscope.model.entities import Recording
from inductoscope.processes.last_words import last_lines
from inductoscope.processes.limited import (
    ChildEvent,
    ChildLimits,
    ChildProgram,
    ChildResult,
    run_child,
)
from inductoscope.recording.layout import MANIFEST
from inductoscope.recording.location import create_recording
from inductoscope.recording.values import texts
from inductoscope.recording.writer import StreamWriter
from inductoscope.targets.pretending import has_triton
from inductoscope.targets.recompile.own_target import target_of_graphs
from inductoscope.targets.recompile.work_list import Order, captured_graphs

_SETTING = re.compile(r"[A-Za-z_][\w.]{0,100}")


@dataclass(frozen=True)
class RecompileLimits:
    """What the child may use."""

    # A model of diffusers has some hundred kernels, and each is compiled in every configuration.
    seconds: float = 1800.0
    memory_gib: float = 16.0


Say = Callable[[str], None]


def recompile(
    recording: Recording,
    *,
    target: Target | None,
    settings: Mapping[str, object],
    into: Path,
    limits: RecompileLimits | None = None,
    made_with: Mapping[str, str] | None = None,
    say: Say = lambda text: None,
) -> Path:
    """Compile every graph that Dynamo captured, with changed `settings`, or for a `target`.

    `settings` are those of torch._inductor.config. `into` is a new or empty folder. Without a
    target the graphs stay on their devices (a GPU is pretended: see inductoscope.targets), and
    kernels are written but not compiled: all up to the kernel's text, in seconds. Returns the new
    recording; what could not be compiled is in its manifest, with the reason: see model.target.
    """
    graphs = tuple(captured_graphs(recording))
    if not graphs:
        raise ToolFailure(
            "The recording has no captured graph, so there is nothing to compile. "
            "'inductoscope run SCRIPT' records them."
        )
    machine_code = target is not None and has_triton()
    chosen = target or target_of_graphs(recording)
    order = Order(graphs, _checked(settings), str(chosen or ""), machine_code)
    details = _details(recording, order, made_with or {})
    folder = create_recording(_command(recording), output=into, **details)
    ended, results = _run(order, folder, limits or RecompileLimits(), say)
    _note(
        folder,
        came_to_its_end=ended.exit_code == 0,
        left_out=[
            {"compile": name, "reason": why}
            for name, why in _left_out(order, ended, results).items()
        ],
    )
    return folder


def _checked(settings: Mapping[str, object]) -> dict[str, object]:
    for name, value in settings.items():
        if not _SETTING.fullmatch(name) or not isinstance(value, (bool, int, float, str)):
            raise ToolFailure(f"{name} cannot be set to {value!r}: give a plain value.")
    return dict(settings)


def _command(recording: Recording) -> list[str]:
    """What the graphs come from, not what compiled them."""
    return list(texts(recording.manifest.get("command"))) or ["recording"]


def _details(recording: Recording, order: Order, made_with: Mapping[str, str]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "recompiled_from": str(Path(recording.path).absolute()),
        "settings": order.settings,
        "made_with": made_with,
    }
    if order.target:
        details.update(target=order.target, ran_on_gpu=False, machine_code=order.machine_code)
    return details


# --- the child ------------------------------------------------------------------------------------


def _run(
    order: Order, folder: Path, limits: RecompileLimits, say: Say
) -> tuple[ChildResult, dict[int, ChildEvent]]:
    results: dict[int, ChildEvent] = {}

    def heard(event: ChildEvent) -> None:
        if event.get("event") == "graph-start":
            say(f"compiling graph {event.get('compile')}")
        elif event.get("event") == "graph" and isinstance(event.get("number"), int):
            results[event["number"]] = event

    stream = StreamWriter(folder, first_event=describe_launcher)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inductoscope-recompile-") as name:
        (path := Path(name, "order.json")).write_text(order.to_json(), "utf-8")
        program = Path(__file__).with_name("child.py")
        child = ChildProgram(program, (str(path),), _environment(folder, Path(name)))
        bounds = ChildLimits(seconds=limits.seconds, memory_gib=limits.memory_gib)
        ended = run_child(child, bounds, Path(name), heard)
    status = -9 if ended.exit_code is None else ended.exit_code
    record_ending(stream, 0, status, time.monotonic() - started)
    return ended, results


def _environment(folder: Path, scratch: Path) -> dict[str, str]:
    """Recorded, with a private cache that stays with the recording: it holds the binaries."""
    return {
        **environment_for(folder, os.environ, fresh=True),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # Workers would be other processes.
        "TMPDIR": str(scratch),
    }


def _left_out(
    order: Order, ended: ChildResult, results: Mapping[int, ChildEvent]
) -> dict[str, str]:
    """The graphs that were not compiled, and why."""
    failure = next((e for e in ended.events if e.get("event") == "error"), None)
    if failure is not None:
        raise ToolFailure(f"The graphs could not be compiled: {failure.get('message')}")
    left_out = {}
    for number, graph in enumerate(order.graphs):
        result = results.get(number, {})
        if result.get("outcome") != "compiled":
            left_out[graph.compile] = str(result.get("reason") or _why_not(ended))
    if not results:
        raise ToolFailure(f"No graph could be compiled: {_why_not(ended)}.")
    return left_out


def _why_not(ended: ChildResult) -> str:
    if ended.exit_code is None:
        return "the time for compiling was up"
    if ended.signal:
        return f"the compiler died of {ended.signal}"
    last = last_lines(ended.output, 1) or ["no word of why"]
    return f"the compiler ended with exit code {ended.exit_code}: {last[0][:300]}"


def _note(folder: Path, **facts: Any) -> None:
    """The manifest says what the recording lacks, so that every view can show it."""
    path = folder / MANIFEST
    manifest = {**json.loads(path.read_text("utf-8")), **facts}
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    unfinished.replace(path)
