"""Compiles a kernel alone, in a child under limits, and says how that ended.

Nothing runs on a GPU, and you do not need one: Triton compiles for any given target.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, unwritable
from inductoscope.kernels.asking import has_torch
from inductoscope.kernels.resources import Resources, amd_resources, nvidia_resources
from inductoscope.kernels.script import Plan, script_text
from inductoscope.kernels.waiting import WaitingProcess, blocking_child, waiting_processes
from inductoscope.processes.limited import (
    ChildEvent,
    ChildLimits,
    ChildProgram,
    ChildResult,
    run_child,
)

FORMS = ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")
_KEPT = (*FORMS, "cubin", "hsaco", "spv")
_OUT_OF_MEMORY = re.compile(
    r"MemoryError|bad_alloc|out of memory|Cannot allocate memory|Memory allocation failure"
    r"|failed to map segment",
    re.IGNORECASE,
)
_OUTSIDE_TRITON = ("import", "preparation")


@dataclass(frozen=True)
class TritonStage:
    """One stage of Triton; without seconds if it had not ended."""

    name: str
    seconds: float | None


@dataclass(frozen=True)
class Attempt:
    """One compile in one child."""

    outcome: str  # 'compiles', 'does not end' or 'fails'
    seconds: float
    stages: tuple[TritonStage, ...]
    message: str = ""
    waits_for: WaitingProcess | None = (
        None  # the child process that it waited for when its time was up
    )
    itself: WaitingProcess | None = None
    resources: Resources = field(default_factory=Resources)
    triton: str = ""

    @property
    def unfinished(self) -> str:
        """The stage that began but did not end."""
        return next((stage.name for stage in self.stages if stage.seconds is None), "")


@dataclass(frozen=True)
class KernelTrial:
    """All attempts at one configuration, and what the last one left."""

    plan: Plan
    limits: ChildLimits
    attempts: tuple[Attempt, ...]
    files: Mapping[str, Path]

    @property
    def outcome(self) -> str:
        """The worst that happened."""
        order = ("does not end", "fails", "compiles")
        return min((attempt.outcome for attempt in self.attempts), key=order.index)

    @property
    def worst(self) -> Attempt:
        return next(a for a in self.attempts if a.outcome == self.outcome)


def check_triton(plan: Plan) -> None:
    """Raise ToolFailure, with what to install, where the kernel cannot be compiled here."""
    if importlib.util.find_spec("triton") is None:
        raise ToolFailure(
            "Triton is not installed, so nothing can be compiled. Install it (pip install "
            "triton; no GPU is needed), or write the script with --script and run it elsewhere."
        )
    if plan.needs_torch and not has_torch():
        raise ToolFailure(
            f"{plan.kernel.name} calls torch._inductor.runtime.triton_helpers, and torch is not "
            "installed. Install torch (a CPU build is enough)."
        )


@dataclass(frozen=True)
class TrialRequest:
    """How to try one plan."""

    limits: ChildLimits
    times: int = 1
    output: Path | None = None  # where to keep what the stages made


def try_alone(plan: Plan, request: TrialRequest, say: Callable[[str], None]) -> KernelTrial:
    """Compile as often as asked, each time in a new process with an empty cache."""
    check_triton(plan)
    attempts = []
    files: dict[str, Path] = {}
    for number in range(request.times):
        count = f" ({number + 1} of {request.times})" if request.times > 1 else ""
        say(f"compiling {plan.kernel.name} for {plan.target}{count}: {plan.config}")
        with tempfile.TemporaryDirectory(prefix="inductoscope-kernel-") as name:
            attempts.append(_attempt(plan, request.limits, Path(name), say))
            if request.output is not None:
                files |= _keep(Path(name), request.output)
    return KernelTrial(plan, request.limits, tuple(attempts), files)


def _keep(folder: Path, output: Path) -> dict[str, Path]:
    try:
        output.mkdir(parents=True, exist_ok=True)
        kept = {}
        for form in _KEPT:
            made = folder / f"kernel.{form}"
            if made.exists():
                kept[form] = Path(shutil.copyfile(made, output / made.name))
        kept["script"] = Path(shutil.copyfile(folder / "alone.py", output / "alone.py"))
        return kept
    except OSError as error:
        raise unwritable(output, error) from error


def _attempt(plan: Plan, limits: ChildLimits, folder: Path, say: Callable[[str], None]) -> Attempt:
    script = folder / "alone.py"
    script.write_text(script_text(plan), "utf-8")
    script.with_suffix(".target").write_text(plan.target.kind)
    program = ChildProgram(
        Path(__file__).with_name("probe.py"),
        (str(script), str(folder)),
        {
            "TRITON_CACHE_DIR": str(folder / "cache"),
            "TRITON_ALWAYS_COMPILE": "1",
            "TRITON_DUMP_PTXAS_LOG": "1",
            "TMPDIR": str(folder),  # What ptxas leaves when it is killed goes with the folder.
        },
    )
    ended = run_child(program, limits, folder, lambda event: _tell(event, say))
    _check_start(plan, limits, ended)
    return _judged(plan, ended, folder)


def _tell(event: ChildEvent, say: Callable[[str], None]) -> None:
    if event.get("event") == "start" and event.get("stage") not in _OUTSIDE_TRITON:
        say(f"stage {event.get('stage')}")


def _check_start(plan: Plan, limits: ChildLimits, ended: ChildResult) -> None:
    """Raise if the child never started compiling: that says nothing about the kernel."""
    said = {str(event.get("event")): event for event in ended.events}
    if "no backend" in said:
        raise ToolFailure(
            f"The installed Triton {_version(ended)} has no backend for {plan.target.kind}. "
            "Give another --target, or install a Triton that supports it."
        )
    if any(event.get("stage") == "preparation" for event in ended.events):
        return
    error = said.get("error") or said.get("missing")
    if error is not None:
        message = f"{error.get('kind')}: {error.get('message')}"
    elif ended.exit_code is None:
        message = f"it did not finish within {limits.start_seconds:g} s"
    else:
        message = f"exit code {ended.exit_code}: {ended.output[-500:].strip()}"
    advice = " Give more with --memory." if _OUT_OF_MEMORY.search(message + ended.output) else ""
    raise ToolFailure(f"The kernel's script could not be loaded: {message}.{advice}")


def _version(ended: ChildResult) -> str:
    return next((str(e.get("version")) for e in ended.events if e.get("event") == "triton"), "")


def _judged(plan: Plan, ended: ChildResult, folder: Path) -> Attempt:
    stages, began = _stages(ended)
    compiled = next((e for e in ended.events if e.get("event") == "compiled"), None)
    finished = _moment(compiled) if compiled else ended.stopped_at
    seconds = round(max(0.0, finished - began), 3)
    version = _version(ended)
    if compiled is not None:
        resources = _resources(plan, compiled, ended.output, folder)
        return Attempt("compiles", seconds, stages, resources=resources, triton=version)
    if ended.exit_code is None:
        group = waiting_processes(ended.observed) if ended.observed is not None else []
        return Attempt(
            "does not end",
            seconds,
            stages,
            waits_for=blocking_child(group),
            itself=group[0] if group else None,
            triton=version,
        )
    return Attempt("fails", seconds, stages, message=_failure(ended), triton=version)


def _moment(event: ChildEvent) -> float:
    value = event.get("at")
    return float(value) if isinstance(value, (int, float)) else 0.0


def _stages(ended: ChildResult) -> tuple[tuple[TritonStage, ...], float]:
    """The stages with their seconds, and when the first began."""
    started: dict[str, float] = {}
    seconds: dict[str, float | None] = {}
    for event in ended.events:
        name = str(event.get("stage"))
        if event.get("event") == "start" and name != "import":
            started[name] = _moment(event)
            seconds[name] = None
            if name != "preparation" and seconds.get("preparation", 0.0) is None:
                # What comes before the first stage: the versions of the tools, the cache's key.
                seconds["preparation"] = round(_moment(event) - started["preparation"], 4)
        elif event.get("event") == "end" and name in started:
            seconds[name] = round(_moment(event) - started[name], 4)
    stages = tuple(TritonStage(name, value) for name, value in seconds.items())
    return stages, min(started.values(), default=ended.stopped_at)


def _failure(ended: ChildResult) -> str:
    error = next((e for e in ended.events if e.get("event") == "error"), None)
    if error is not None:
        text = f"{error.get('kind')}: {error.get('message')}"
    elif ended.signal:
        text = f"{ended.signal} killed the compiler. {ended.output[-2000:].strip()}"
    else:
        text = f"exit code {ended.exit_code}. {ended.output[-2000:].strip()}"
    if _OUT_OF_MEMORY.search(text):
        text = f"it ran out of the memory that --memory allows. {text}"
    return text.strip()


def _resources(plan: Plan, compiled: ChildEvent, output: str, folder: Path) -> Resources:
    metadata: Any = compiled.get("metadata")
    shared = metadata.get("shared") if isinstance(metadata, dict) else None
    shared = shared if isinstance(shared, int) else None
    if plan.target.kind == "hip":
        return amd_resources(read_form(folder, "amdgcn"), shared)
    return nvidia_resources(output, read_form(folder, "usage"), shared)


def read_form(folder: Path, form: str) -> str:
    """One form of the kernel as a stage left it, or nothing."""
    path = folder / f"kernel.{form}"
    return path.read_text("utf-8", "replace") if path.exists() else ""
