"""Recompiles the graphs of a recording: with other settings, or for another device.

A recording is untrusted data. Its graphs are rebuilt, never executed as code: operations are looked
up in tables of torch's operators, and arguments are parsed. All of it happens in a child process
under limits, with a cache of its own.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.launch.environment import with_parts
from inductoscope.launch.program import environment_for, record_ending
from inductoscope.model.entities import Recording
from inductoscope.model.fold import load
from inductoscope.model.target import recording_target
from inductoscope.processes.children import (
    ChildCall,
    ChildEvent,
    ChildLimits,
    ChildResult,
    run_child,
)
from inductoscope.recording.layout import MANIFEST
from inductoscope.recording.location import create_recording, recordings_folder
from inductoscope.recording.values import texts
from inductoscope.recording.writer import StreamWriter, describe_launcher
from inductoscope.targets.work_list import Order, captured_graphs, devices_for_graphs
from inductoscope.torch_facts.gpu_targets import Target, has_triton, read_target
from inductoscope.torch_facts.messages import last_lines
from inductoscope.version import __version__

# --- The device that a recording was made on, if its graphs ran on a GPU --------------------------

# Device properties as Inductor writes them into each kernel.
_PROPERTIES = re.compile(r"DeviceProperties\(type='(cuda|hip)'[^)]{0,300}?\bcc='?(gfx\w+|\d+)")


def target_of_graphs(recording: Recording) -> Target | None:
    """Return the GPU target of the graphs; None for graphs on the CPU."""
    if "cpu" in devices_for_graphs(captured_graphs(recording)):
        return None
    for graph in recording.graphs:
        for kernel in graph.kernels:
            found = _PROPERTIES.search(recording.payload(kernel.payload))
            if found is not None:
                try:
                    return read_target(f"{found[1]}:{found[2]}")
                except UsageError as error:
                    raise ToolFailure(
                        f"The graphs cannot be compiled again here: {error}"
                    ) from error
    raise ToolFailure(
        "The graphs ran on a GPU, but no kernel in the recording says which. Name a target."
    )


# --- Compiles the graphs of a recording again, in a child process, into another recording ---------

_SETTING = re.compile(r"[A-Za-z_][\w.]{0,100}")


# A diffusers model has some hundred kernels, each compiled in every configuration.
_SECONDS = 1800.0

Say = Callable[[str], None]


def recompile(
    recording: Recording,
    *,
    target: Target | None,
    settings: Mapping[str, object],
    into: Path,
    seconds: float = _SECONDS,
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
    details: dict[str, Any] = {
        "recompiled_from": str(Path(recording.path).absolute()),
        "settings": order.settings,
        "made_with": versions(),
    }
    if order.target:
        details.update(target=order.target, ran_on_gpu=False, machine_code=order.machine_code)
    # The command that produced the graphs, not the one that recompiles them.
    command = list(texts(recording.manifest.get("command"))) or ["recording"]
    folder = create_recording(command, output=into, **details)
    ended, results = _run(order, folder, seconds, say)
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


# --- the child ------------------------------------------------------------------------------------


def _run(
    order: Order, folder: Path, seconds: float, say: Say
) -> tuple[ChildResult, dict[int, ChildEvent]]:
    results: dict[int, ChildEvent] = {}

    def heard(event: ChildEvent) -> None:
        if event["event"] == "graph-start":
            say(f"compiling graph {event['compile']}")
        elif event["event"] == "graph":
            results[event["number"]] = event

    stream = StreamWriter(folder, first_event=describe_launcher)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="inductoscope-recompile-") as name:
        call = ChildCall(
            "inductoscope.inside.recompiling:compile_graphs",
            {"order": asdict(order)},
            _environment(folder, Path(name)),
            Path(name),
        )
        ended = run_child(call, ChildLimits(seconds=seconds), heard)
    status = -9 if ended.exit_code is None else ended.exit_code
    record_ending(stream, 0, status, time.monotonic() - started)
    return ended, results


def _environment(folder: Path, scratch: Path) -> dict[str, str]:
    """Return the recorded environment, with a private cache inside the new recording."""
    return {
        **environment_for(folder, os.environ, fresh=True),
        **with_parts("record"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # Workers would be other processes.
        "TMPDIR": str(scratch),
    }


def _left_out(
    order: Order, ended: ChildResult, results: Mapping[int, ChildEvent]
) -> dict[str, str]:
    """Return the graphs that were not compiled, and why."""
    if ended.find("error") and not ended.find("ready"):
        raise ToolFailure(f"The graphs could not be compiled: {ended.problem[:1000]}")
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
    """Note in the manifest what the recording lacks, so that every view can show it."""
    path = folder / MANIFEST
    manifest = {**json.loads(path.read_text("utf-8")), **facts}
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(manifest, indent=1) + "\n", "utf-8")
    unfinished.replace(path)


# --- The recording for a target that belongs to a recording: made once, then kept -----------------
#
# It is stored in the user's own folder, under a digest of all inputs: the content of a recording is
# untrusted, and a recording may be read-only, or grow.

FOLDER = ".targets"
# The most results to keep; the oldest are removed.
_MOST_KEPT = 32


def recording_for_target(path: Path, target: Target, *, say: Say = lambda text: None) -> Path:
    """Return the recording in `path` compiled for `target`: a stored one, or a new one."""
    recording = load(path)
    already = recording_target(recording)
    if already == str(target):
        return path
    if already:
        raise UsageError(f"{path} is itself compiled for {already}. Give the recording of the run.")
    place, digest = recordings_folder() / FOLDER, _digest(recording, target)
    for kept in place.glob(f"{digest}-*"):
        if _is_whole(kept):
            return kept
    say(f"compiling for {target}")
    with _new_folder(place, digest) as folder:
        return recompile(recording, target=target, settings={}, into=folder, say=say)


def _digest(recording: Recording, target: Target) -> str:
    """Hash everything the result depends on: graphs, device, versions."""
    order = Order(tuple(captured_graphs(recording)), {}, str(target), machine_code=True)
    text = json.dumps([asdict(order), versions()], sort_keys=True)
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16)
    return f"{str(target).replace(':', '_')}-{digest.hexdigest()}"


def versions() -> dict[str, str]:
    """Return the versions that the result depends on besides the recording."""
    return {
        "inductoscope": __version__,
        **{name: _version(name) for name in ("torch", "triton")},
    }


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _is_whole(folder: Path) -> bool:
    try:
        manifest: Any = json.loads((folder / MANIFEST).read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(manifest, dict) and manifest.get("came_to_its_end") is True


@contextlib.contextmanager
def _new_folder(place: Path, digest: str) -> Iterator[Path]:
    """Create an empty folder to keep the result in, or a temporary one; remove it on failure."""
    try:
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_room(place)
        folder = Path(tempfile.mkdtemp(prefix=f"{digest}-", dir=place))
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="inductoscope-target-"))
    try:
        yield folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _make_room(place: Path) -> None:
    found = sorted(place.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in found[_MOST_KEPT - 1 :]:
        shutil.rmtree(old, ignore_errors=True)
