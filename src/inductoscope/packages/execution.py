"""Runs a package in a child process, under limits, and reports the outcome.

Loading a package executes native code from it. That happens only for a file that the user gave
inputs for, and never in the tool's own process.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from inductoscope.errors import ToolFailure, UsageError
from inductoscope.packages import cpp_library
from inductoscope.packages.package import Package, PackagedModel
from inductoscope.processes.children import (
    NO_LIMIT,
    ChildCall,
    ChildEvent,
    ChildLimits,
    ChildResult,
    run_child,
)
from inductoscope.recording.codec import decode
from inductoscope.torch_facts.messages import crash_place
from inductoscope.torch_facts.package_wrappers import BrokenGuard, InputFacts, translate
from inductoscope.wording import count_of

# torch's message if a file of a package cannot be written.
_NOT_UNPACKED = "Failed to extract zip file"

STEPS = {
    "torch": "importing torch",
    "operators": "loading the custom operators",
    "inputs": "loading the inputs",
    "load": "loading the package",
    "run": "running the model",
    "repeat": "calling it again and again",
    "reload": "loading it again and again",
    "parts": "calling parts of it alone",
    "streams": "running it on several streams",
}


@dataclass(frozen=True)
class RunRequest:
    inputs: Path
    operators: tuple[Path, ...] = ()
    limits: ChildLimits = field(default_factory=ChildLimits)
    serve: Mapping[str, int] = field(default_factory=dict)  # threads and calls; empty for one run
    cpp_library_first: bool = False  # load the one that torch uses before the package
    parts: bool = False  # call parts of the model alone, to find a leaking part


@dataclass(frozen=True)
class PackageTrial:
    package: Package
    model: PackagedModel
    request: RunRequest
    folder: Path  # for this trial alone
    say: Callable[[str], None]


@dataclass(frozen=True)
class RunOutcome:
    outcome: str  # runs, broken guards, fails, dies, does not end
    stage: str
    message: str
    signal: str
    exit_code: int | None
    seconds: float
    inputs: tuple[InputFacts, ...]
    outputs: tuple[Mapping[str, Any], ...]
    broken_guards: tuple[BrokenGuard, ...]
    output: str  # all that it printed
    measured: tuple[ChildEvent, ...] = ()  # measurements of repeated calls

    @property
    def where(self) -> str:
        """The step in which the run ended, as part of a sentence."""
        return f"while {STEPS[self.stage]}" if self.stage in STEPS else ""


def run_package(trial: PackageTrial) -> RunOutcome:
    """Run a package once, or repeatedly if `serve` is set."""
    request, folder = trial.request, trial.folder
    for path in (request.inputs, *request.operators):
        if not path.is_file():
            raise UsageError(f"{path} does not exist, or is not a file.")
    call = ChildCall(
        "inductoscope.inside.packages.child:run_package",
        {"order": _order(trial)},
        {**os.environ, **child_environment(folder)},
        folder,
    )

    def on_event(event: ChildEvent) -> None:
        if event["event"] == "stage":
            trial.say(STEPS.get(event["stage"], "working"))

    ended = run_child(call, limits_for(trial.model, request.limits), on_event)
    _raise_if_full(trial, ended)
    return _outcome(ended, trial.model)


def _raise_if_full(trial: PackageTrial, ended: ChildResult) -> None:
    """Raise if the disk was full: torch unpacks a package into the temporary folder."""
    text = " ".join(str(event.get("message", "")) for event in ended.events)
    package, free = trial.package, shutil.disk_usage(trial.folder).free
    if _NOT_UNPACKED in text and free < package.bytes:
        raise ToolFailure(
            f"There is no room to unpack {package.path.name}: {trial.folder.parent} has {free:,} "
            f"bytes left, and the package has {package.bytes:,}. Make room there, or set TMPDIR to "
            "a folder that has some."
        )


def child_environment(folder: Path) -> dict[str, str]:
    """Return the child's environment: a temporary folder of its own, and C++ stack traces."""
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return {
        "TMPDIR": str(temporary),
        "TORCH_SHOW_CPP_STACKTRACES": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(temporary / "compiled"),
    }


def limits_for(model: PackagedModel, limits: ChildLimits) -> ChildLimits:
    """Adapt the limits: none on address space for a GPU, where CUDA reserves huge ranges."""
    wide = replace(limits, cores=os.cpu_count() or 1)
    return wide if model.device in ("", "cpu") else replace(wide, memory_gib=NO_LIMIT)


def _order(trial: PackageTrial) -> dict[str, Any]:
    package, model, request = trial.package, trial.model, trial.request
    wrapper = model.wrapper
    return {
        "package": str(package.path.absolute()),
        "kind": package.kind,
        "model": model.name,
        "device": model.device,
        "inputs": str(request.inputs.absolute()),
        "operators": [str(path.absolute()) for path in request.operators],
        "in_spec": wrapper.in_spec if wrapper else "",
        "has_weights_files": bool(model.weights_files),
        "serve": dict(request.serve),
        "library": model.library_name,
        "custom_operators": list(model.custom_operators),
        "parts": request.parts,
        "cpp_library_first": request.cpp_library_first,
        "raw_inputs": str(trial.folder / "inputs.pt"),
    }


def _outcome(ended: ChildResult, model: PackagedModel) -> RunOutcome:
    by_name: dict[str, ChildEvent] = {str(e.get("event")): e for e in ended.events}
    _raise_refusals(by_name, ended)
    step = str(by_name.get("stage", {}).get("stage", "torch"))
    message = str(by_name.get("error", {}).get("message", ""))
    broken = tuple(BrokenGuard(**item) for item in by_name.get("guards", {}).get("broken", ()))
    if message and not broken:
        inputs = model.wrapper.guards.inputs if model.wrapper else ()
        broken = translate(f"{message}\n{ended.output}", inputs)
    times = [float(event["at"]) for event in ended.events if "at" in event]
    return RunOutcome(
        outcome=_ending(ended, by_name, broken),
        stage=step,
        message=message,
        signal=ended.signal,
        exit_code=ended.exit_code,
        seconds=round(max(times) - min(times), 3) if times else 0.0,
        inputs=tuple(
            decode(InputFacts, item) for item in by_name.get("inputs", {}).get("inputs", ())
        ),
        outputs=tuple(by_name.get("outputs", {}).get("outputs", ())),
        broken_guards=broken,
        output=ended.output,
        measured=tuple(e for e in ended.events if e.get("event") == "measured"),
    )


def _raise_refusals(by_name: Mapping[str, ChildEvent], ended: ChildResult) -> None:
    if "refused" in by_name:
        raise UsageError(str(by_name["refused"].get("message")))
    step = by_name.get("stage", {}).get("stage")
    error = str(by_name.get("error", {}).get("message", ""))
    if step == "operators" and error:
        raise UsageError(f"--ops: a file of custom operators cannot be loaded: {error}")
    if step in (None, "torch") and "start" not in by_name:
        if "No module named 'torch'" in ended.output:
            raise ToolFailure("torch is not installed for this Python, so nothing can be run.")
        last = (ended.output.strip().splitlines() or ["it said nothing"])[-1]
        raise ToolFailure(f"The child process could not import torch: {last}")


def _ending(
    ended: ChildResult, by_name: Mapping[str, ChildEvent], broken: tuple[BrokenGuard, ...]
) -> str:
    harmful = [item for item in broken if item.is_about_inputs and not item.is_harmless]
    if harmful and "outputs" not in by_name:
        return "broken guards"
    if "error" in by_name:
        return "fails"
    if ended.exit_code is None:
        return "does not end"
    if "done" not in by_name:
        return "dies"
    return "runs"


def first_lines(message: str, most: int = 3) -> str:
    text = re.split(r"\n(?:C\+\+ CapturedTraceback|Exception raised from)", message)[0]
    return " ".join(" ".join(text.split("\n")[:most]).split())


# --- Facts about a package that ran, each with how it was established -----------------------------

_NO_OPERATOR = re.compile(r"Could not find schema for ([\w:]+)")


_HINTS = {
    "SIGILL": " The processor met an instruction that it does not have: the package was built for "
    "another one.",
    "SIGKILL": " The system may have ended it for want of memory.",
}


@dataclass(frozen=True)
class PackageFinding:
    name: str
    text: str
    established: str
    confidence: str = "proven"  # or likely, unknown
    is_problem: bool = True


def findings_of_run(run: RunOutcome, model: PackagedModel) -> Iterator[PackageFinding]:
    for item in run.broken_guards:
        how = "compared the given inputs with the checks in the package's C++ wrapper"
        if run.message:
            how = "raised by the package's own check (AOTI_RUNTIME_CHECK_INPUTS=1)"
        name = "broken_guard" if item.is_about_inputs else "operator_result"
        yield PackageFinding(name, item.text, how, is_problem=not item.is_harmless)
    if run.outcome == "fails" and not run.broken_guards:
        yield _error(run)
    if run.outcome == "dies":
        yield _death(run, model)
    if run.outcome == "does not end":
        text = f"It did not end in time; it was stopped {run.where}."
        yield PackageFinding("no_end", text, "seen in a child process")
    yield from _values(run)


def _error(run: RunOutcome) -> PackageFinding:
    lacking = _NO_OPERATOR.search(run.message)
    if lacking is not None:
        text = (
            f"The custom operator {lacking[1]} is not defined. Give the file that defines it: "
            "--ops FILE, a library (.so) or a Python file (.py)."
        )
        return PackageFinding("missing_operator", text, f"torch raised an error {run.where}")
    text = f"An error was raised {run.where}: {first_lines(run.message)}"
    return PackageFinding("error", text, "the child process raised it")


def _death(run: RunOutcome, model: PackagedModel) -> PackageFinding:
    how = f"of {run.signal}" if run.signal else f"with exit code {run.exit_code}"
    hint = _HINTS.get(run.signal, "")
    calls = model.wrapper.calls if model.wrapper else ()
    place = crash_place(run.output, [call.name for call in calls])
    where = f", {place.text}" if place is not None else ""
    if place is not None and place.kernel:
        hint += " A kernel that dies need not be the guilty one: an earlier one may have given it"
        hint += " wrong values."
    text = f"The child process died {how} {run.where}{where}.{hint}"
    established = "seen in a child process"
    if place is not None:
        established += ", which printed its native stack"
    return PackageFinding("death", text, established)


def _values(run: RunOutcome) -> Iterator[PackageFinding]:
    for number, output in enumerate(run.outputs):
        if output["nan"]:
            text = f"output {number} holds {count_of(output['nan'], 'NaN')}"
            how = "counted in the output of the run"
            yield PackageFinding("nan_output", text, how, is_problem=False)


# --- a second run, with the C++ library that torch uses loaded before the package -----------------
#
# The runs differ in nothing else, so that the second shows the effect of the copy on the first.

_BAD = ("fails", "dies", "does not end")
_COPY = "The package brings a copy of the C++ library libstdc++, beside the one that torch uses."
SECOND_RUN = f"running it again with {cpp_library.NAME} loaded first"
_BOTH_RUNS = f"two runs in child processes, the second with {cpp_library.NAME} loaded first"


def may_be_the_copy(first: RunOutcome, model: PackagedModel) -> bool:
    """Check whether the copy may have made the first run fail."""
    return first.outcome in _BAD and cpp_library.brings_own(model.library)


def findings_of_both(
    first: RunOutcome, second: RunOutcome, model: PackagedModel
) -> Iterator[PackageFinding]:
    """Yield conclusions from the second run about the first."""
    if not _gets_further(first, second):
        said = second.signal or first_lines(second.message)
        text = f"{_COPY} With {cpp_library.NAME} loaded first it {_in_words(second)}"
        text += f"{f' ({said})' if said else ''}, too, so that the copy is not known to be why."
        yield PackageFinding("cpp_library", text, _BOTH_RUNS, is_problem=False)
        return
    # Loading is deterministic; a model may fail intermittently, and a busy machine may be slow.
    is_proven = first.stage == "load" and first.outcome != "does not end"
    why = f"{_COPY} The two {'' if is_proven else 'seem to '}get in each other's way: "
    if second.outcome == "runs":
        how = f"ends well, with {count_of(len(second.outputs), 'output')}"
    else:
        how = f"goes further, and then {_in_words(second)}"
    text = f"{why}with {cpp_library.NAME} loaded first, the same run {how}."
    confidence = "proven" if is_proven else "likely"
    yield PackageFinding("cpp_library", text, _BOTH_RUNS, confidence)
    yield from findings_of_run(second, model)
    yield _remedy(model)


def _gets_further(first: RunOutcome, second: RunOutcome) -> bool:
    steps = list(STEPS)
    return second.outcome == "runs" or steps.index(second.stage) > steps.index(first.stage)


def _in_words(run: RunOutcome) -> str:
    if run.outcome == "broken guards":
        return "breaks a demand of the package"
    return f"{run.outcome} {run.where}"


def _remedy(model: PackagedModel) -> PackageFinding:
    command = model.wrapper.link_command if model.wrapper else ""
    linked = f" This one was linked by {command.split()[0]}." if command.split() else ""
    text = (
        f"To load it as it is: after import torch, run {cpp_library.CODE}, or start the program "
        f"with {cpp_library.PRELOAD}. {cpp_library.CURE}{linked}"
    )
    return PackageFinding("remedy", text, _BOTH_RUNS, is_problem=False)
