"""Runs a package as a server would: from several threads, without Python, many times.

The calls of a single thread, in a separate process, give the expected results. In whatever order
several threads call with the same inputs, together they must give the same results; if not, calls
interfered with each other. The ways of calling that interfere show which state is shared. If
something grows with every call, trials find the part of the model that leaks.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import statistics
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from inductoscope.packages import cpp_library
from inductoscope.packages.execution import (
    PackageFinding,
    PackageTrial,
    RunOutcome,
    RunRequest,
    child_environment,
    limits_for,
    run_package,
)
from inductoscope.packages.fitting import LocalMachine
from inductoscope.packages.package import PackagedModel
from inductoscope.processes.children import ChildLimits, run_program
from inductoscope.wording import count_of

# --- growth ---------------------------------------------------------------------------------------
#
# One-time allocations, caches and retained pages of the allocator all level off. Only steady
# growth, as much in the second half of the calls as in the first, counts as growth.

# The sampled quantities, their names, and the least total growth worth reporting.
_QUANTITIES = (
    ("allocated", "bytes allocated", 4 << 10),
    ("resident", "bytes of resident memory", 4 << 20),
    ("files", "open files", 5),
    ("threads", "threads", 5),
)
_MOST_IDLE = 0.2  # share of the windows that may pass without growth
_FAR_MORE = 4  # times as much
_LEAST_LATER = 0.35  # share of the growth that falls into the second half


@dataclass(frozen=True)
class Growth:
    quantity: str
    name: str
    total: int
    calls: int
    per_call: float

    @property
    def amount(self) -> str:
        """The growth per call, as part of a sentence."""
        name = self.name.removesuffix("s") if self.per_call == 1 else self.name
        return f"{self.per_call:.6g} {name}"

    @property
    def text(self) -> str:
        return f"Every call adds {self.amount}, over {self.calls} calls."


def growths(samples: Sequence[Mapping[str, int]]) -> tuple[Growth, ...]:
    """Return all quantities that grow steadily over the samples."""
    found = [_grown(quantity, name, least, samples) for quantity, name, least in _QUANTITIES]
    kept = [growth for growth in found if growth is not None]
    # Allocated bytes are exact, resident memory is less so. But tensors may be in memory outside of
    # malloc, which only resident memory includes.
    by_quantity = {growth.quantity: growth for growth in kept}
    exact, rough = by_quantity.get("allocated"), by_quantity.get("resident")
    if exact is not None and rough is not None:
        kept.remove(exact if rough.total > _FAR_MORE * exact.total else rough)
    return tuple(kept)


def _grown(
    quantity: str, name: str, least: int, samples: Sequence[Mapping[str, int]]
) -> Growth | None:
    values = [sample[quantity] for sample in samples]
    if len(values) < 5 or min(values) < 0:
        return None
    steps = [later - earlier for earlier, later in itertools.pairwise(values)]
    total = values[-1] - values[0]
    later = values[-1] - values[len(values) // 2]
    idle = sum(step <= 0 for step in steps)
    if total < least or idle > _MOST_IDLE * len(steps) or later < _LEAST_LATER * total:
        return None
    calls = samples[-1]["calls"] - samples[0]["calls"]
    # Less than one file or thread in ten calls may have another cause.
    if calls <= 0 or (quantity in ("files", "threads") and total < calls / 10):
        return None
    return Growth(quantity, name, total, calls, total / calls)


# --- location of leaks ----------------------------------------------------------------------------

# An operator is named if it causes at least this share of the growth per call.
_MOST_OF_IT = 0.7
_MEMORY = ("allocated", "resident")


@dataclass(frozen=True)
class LeakTrials:
    """Growth of the parts of a model: its custom operators, and the rest."""

    problem: str = ""  # why there were no trials
    operators: Mapping[str, tuple[Growth, ...]] = field(default_factory=dict)  # each alone
    without_operators: tuple[Growth, ...] | None = None  # the rest; None: not tried


def _look_for_leaks(trial: PackageTrial) -> LeakTrials:
    """Call each custom operator alone, and the model with recorded results in their place."""
    if not trial.model.custom_operators:
        return LeakTrials()
    folder = trial.folder / "leaks"
    folder.mkdir()
    run = run_package(replace(trial, request=replace(trial.request, parts=True), folder=folder))
    if run.outcome != "runs":
        return LeakTrials(f"a child process that looked for it {run.outcome}")
    grown = {event.get("name", ""): growths(event["samples"]) for event in run.measured}
    without = grown.pop("", None)
    return LeakTrials("", grown, without)


def findings_of_leaks(grown: Sequence[Growth], trials: LeakTrials) -> Iterator[PackageFinding]:
    """Yield the part that leaks each growing quantity, as far as the trials show it."""
    for growth in grown:
        yield _leaking_operator(growth, trials) or _leaking_rest(growth, trials)


def _leaking_operator(growth: Growth, trials: LeakTrials) -> PackageFinding | None:
    alone = {name: _same(growth, found) for name, found in trials.operators.items()}
    guilty = [(name, one) for name, one in alone.items() if one and _is_most(one, growth)]
    if len(guilty) != 1:
        return None
    name, own = guilty[0]
    how = "called it alone with copies of what the model gives it"
    for other, found in alone.items():
        said = "does not grow" if found is None else f"adds {found.amount}"
        how += f"; {other} alone {said}" if other != name else ""
    text = f"The custom operator {name} leaks: alone, it adds {own.amount} for every call of the "
    text += "model."
    if trials.without_operators is None or _same(growth, trials.without_operators) is not None:
        return PackageFinding("leaks_operator", text, how, "likely")
    whose = "their" if len(alone) > 1 else "its"
    how += f"; with {whose} earlier results in {whose} place the model does not grow"
    return PackageFinding("leaks_operator", f"{text} The container and the kernels do not.", how)


def _leaking_rest(growth: Growth, trials: LeakTrials) -> PackageFinding:
    if trials.problem:
        text = f"What leaks {growth.name} was not found: {trials.problem}."
        return PackageFinding("leaks_unknown", text, "not tried", "unknown", is_problem=False)
    rest = _same(growth, trials.without_operators or ())
    if trials.operators and not _is_most(rest, growth):
        text = f"What leaks {growth.name} was not found: no part of it leaks as much alone."
        how = "tried: the model without custom operators, each of them alone"
        return PackageFinding("leaks_unknown", text, how, "unknown", is_problem=False)
    how = "it calls no custom operator"
    if trials.operators:
        how = "the model grows with earlier results in the place of its custom operators, too"
    text = "The package's own code leaks, or torch's runner: its kernels, its container, or a "
    return PackageFinding("leaks_container", f"{text}library that they call.", how)


def _same(growth: Growth, grown: Sequence[Growth]) -> Growth | None:
    """Find the same quantity in other growths; either measure of memory counts as the same."""
    names = _MEMORY if growth.quantity in _MEMORY else (growth.quantity,)
    return next((one for one in grown if one.quantity in names), None)


def _is_most(found: Growth | None, growth: Growth) -> bool:
    return found is not None and found.per_call >= _MOST_OF_IT * growth.per_call


# --- the C++ program ------------------------------------------------------------------------------

_SOURCE = Path(__file__).with_name("serve.cpp")
_MOST_MESSAGE = 2_000


@dataclass(frozen=True)
class BuiltProgram:
    """The built C++ program, or why there is none."""

    path: Path | None
    problem: str = ""


@dataclass(frozen=True)
class ServerRun:
    events: tuple[Mapping[str, Any], ...]
    exit_code: int | None  # None: killed by the time limit
    printed: str

    @property
    def samples(self) -> list[Mapping[str, int]]:
        return [event for event in self.events if event.get("event") == "sample"]

    def event(self, name: str) -> Mapping[str, Any] | None:
        found = [event for event in self.events if event.get("event") == name]
        return found[-1] if found else None


def build_program(here: LocalMachine, folder: Path, limits: ChildLimits) -> BuiltProgram:
    """Compile the C++ program with the compiler that Inductor would use."""
    compiler = cpp_library.installed_compiler()
    if compiler is None:
        return BuiltProgram(None, "no C++ compiler is installed (set CXX, or install g++)")
    if here.torch_folder is None:
        return BuiltProgram(None, "torch is not installed")
    include, libraries = here.torch_folder / "include", here.torch_folder / "lib"
    if not (include / "torch").is_dir():
        return BuiltProgram(None, f"torch's headers are not in {include}")
    target = folder / "serve"
    names = [path.name for path in here.torch_libraries]
    optional = [f"-l{name}" for name in ("torch_cuda", "c10_cuda") if f"lib{name}.so" in names]
    command = [
        *compiler,
        *("-O1", "-std=c++20", "-w", str(_SOURCE), "-o", str(target)),
        *(f"-I{include}", f"-I{include / 'torch/csrc/api/include'}", f"-L{libraries}"),
        *("-Wl,--no-as-needed", "-ltorch", "-ltorch_cpu", "-lc10", *optional),
        *(f"-Wl,-rpath,{libraries}", "-lpthread", "-ldl"),
    ]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limits.start_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return BuiltProgram(None, f"the compiler did not end within {limits.start_seconds:g} s")
    if done.returncode != 0:
        return BuiltProgram(None, f"the compiler failed: {first_error(done.stderr)}")
    return BuiltProgram(target)


def first_error(text: str) -> str:
    lines = [line for line in text.splitlines() if "error" in line or "No space" in line]
    return (lines or text.strip().splitlines() or ["it said nothing"])[0][:_MOST_MESSAGE]


def call_program(
    program: Path,
    words: Sequence[str],
    limits: ChildLimits,
    folder: Path,
    variables: Mapping[str, str],
) -> ServerRun:
    """Run the C++ program under limits; each line of its output is an event."""
    environment = {**os.environ, **child_environment(folder), **variables}
    code = run_program([str(program), *words], limits, folder, environment=environment)
    lines = (folder / "stdout").read_text("utf-8", "replace").splitlines()
    events = [event for line in lines if (event := _event(line)) is not None]
    printed = (folder / "stderr").read_text("utf-8", "replace")[-20_000:]
    return ServerRun(tuple(events), code, printed)


def _event(line: str) -> Mapping[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


# --- calls from several threads -------------------------------------------------------------------

# The ways to call from several threads: the kind of container, and its description.
WAYS = {
    "queue": "one container with one runner",
    "runners": "one container with a runner for each thread",
    "containers": "a container for each thread",
}
_SEEDS = ("1", "2")
_MOST_KEPT = 512 << 20  # bytes of outputs that are kept to be compared


@dataclass(frozen=True)
class ServedWay:
    name: str
    text: str
    outcome: str  # agrees, interferes, fails, dies, does not end, not tried
    calls: int
    unmatched: int
    message: str


@dataclass(frozen=True)
class Serving:
    """Observations of a package that was called as in a server."""

    threads: int
    calls: int
    not_in_cpp: str  # why there was no C++ program; empty if there was one
    is_deterministic: bool | None
    state: str  # none, container, process, unknown: where results depend on earlier calls
    ways: tuple[ServedWay, ...]
    growth: tuple[Growth, ...]  # in the C++ program
    growth_in_python: tuple[Growth, ...]
    # None: not measured.
    left_behind: int | None  # files in the temporary folder after loading and unloading
    streams_different: int | None
    # Bytes, and mapped copies of the library, that loading and unloading leaves in the process.
    left_by_loading: int | None = None
    still_mapped: int | None = None
    leaks: LeakTrials | None = None  # trials, if something grows
    growth_measured: bool = False  # in C++ or in Python

    def way(self, name: str) -> str:
        return next((way.outcome for way in self.ways if way.name == name), "not tried")


def serve(trial: PackageTrial, run: RunOutcome, here: LocalMachine) -> Serving:
    """Call a package from several threads in C++. `run` has the repeated calls in Python."""
    request, folder, threads = trial.request, trial.folder, trial.request.serve["threads"]
    problem = _not_for_cpp(trial.model, request)
    ways: tuple[ServedWay, ...] = ()
    deterministic: bool | None = None
    state = "unknown"
    samples: Sequence[Mapping[str, int]] = ()
    if not problem:
        trial.say("building the C++ program")
        built = build_program(here, folder, request.limits)
        problem = built.problem
        if built.path is not None:
            call = partial(_call, trial, built.path, calls_to_keep(request, run))
            trial.say("calling it from C++, one call after another")
            first, second = (call("serial", seed) for seed in _SEEDS)
            problem = _failure(first) or _failure(second)
            if not problem:
                # Serial calls give the same results with different random seeds.
                one, other = ((folder / f"serial_{seed}.bin").read_bytes() for seed in _SEEDS)
                deterministic = one == other
                state = _state(first, call("fresh"))
                for name in WAYS if deterministic else ():
                    trial.say(f"calling it from {threads} threads: {WAYS[name]}")
                    # The expected results of separate containers depend on where the state is.
                    common = "-common" if (name, state) == ("containers", "process") else ""
                    ways += (_way(name, call(name + common)),)
                trial.say("watching memory, files and threads")
                samples = call("growth").samples
    growth, in_python = growths(samples), growths(_samples(run, "calls"))
    loading = _measured(run, "loading")
    trials = None
    if growth or in_python:
        trials = _look_for_leaks(trial)
    return Serving(
        threads=threads,
        calls=request.serve["calls"],
        not_in_cpp=problem,
        is_deterministic=deterministic,
        state=state,
        ways=ways,
        growth=growth,
        growth_in_python=in_python,
        left_behind=loading.get("left"),
        streams_different=_measured(run, "streams").get("different"),
        left_by_loading=_left_by_loading(_samples(run, "loading")),
        still_mapped=loading.get("mapped"),
        leaks=trials,
        growth_measured=bool(samples or _samples(run, "calls")),
    )


def calls_to_keep(request: RunRequest, run: RunOutcome) -> int:
    """Return the requested number of calls, capped so that outputs fit into memory."""
    one = sum(math.prod(output["sizes"]) * _width(output["dtype"]) for output in run.outputs)
    most = max(2 * request.serve["threads"], _MOST_KEPT // max(one, 1))
    return int(min(request.serve["calls"], most))


def _width(dtype: str) -> int:
    """Return the bytes of one element, from the bit width in its dtype's name."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def _not_for_cpp(model: PackagedModel, request: RunRequest) -> str:
    python = [path.name for path in request.operators if path.suffix == ".py"]
    if python:
        return f"{', '.join(python)} defines operators in Python, which a C++ program cannot call"
    if model.weights_files:
        return "its weights are in files of the package, which the C++ loader does not read"
    return ""


def _call(
    trial: PackageTrial, program: Path, calls: int, way: str, seed: str = _SEEDS[0]
) -> ServerRun:
    """Run the C++ program in one way, in a process of its own."""
    folder, threads = trial.folder, trial.request.serve["threads"]
    words = [
        *(way, str(trial.package.path.absolute()), trial.model.name),
        *(str(folder / "inputs.pt"), str(folder / f"serial_{seed}.bin")),
        # The same number of calls for each thread.
        *(str(threads), str(calls // threads * threads), seed),
        *(str(path.absolute()) for path in trial.request.operators),
    ]
    limits = limits_for(trial.model, trial.request.limits)
    first = cpp_library.preloaded() if trial.request.cpp_library_first else {}
    return call_program(program, words, limits, folder, first)


def _state(serial: ServerRun, fresh: ServerRun) -> str:
    """Determine where the model keeps state that changes from call to call.

    If a second container repeats the first one's results, there is no state outside of containers.
    """
    called, again = serial.event("called"), fresh.event("called")
    if called is None or again is None or _failure(fresh):
        return "unknown"
    if called["distinct"] == 1:
        return "none"
    return "process" if again["unmatched"] else "container"


def _failure(run: ServerRun) -> str:
    """Return why a run of the C++ program is inconclusive; empty if it succeeded."""
    called, error = run.event("called"), run.event("error")
    if error is not None:
        return f"the C++ program failed: {error.get('message')}"
    if called is None or run.event("done") is None:
        return f"the C++ program {_end(run.exit_code)}"
    if called.get("errors"):
        return f"the C++ program failed: {called.get('error')}"
    return ""


def _end(code: int | None) -> str:
    if code is None:
        return "did not end in time"
    return f"died of signal {-code}" if code < 0 else f"ended with exit code {code}"


def _way(name: str, run: ServerRun) -> ServedWay:
    called: Mapping[str, Any] = run.event("called") or {}
    message = str(called.get("error", "")) or _failure(run)
    unmatched = int(called.get("unmatched", 0))
    if run.exit_code is None:
        outcome = "does not end"
    elif not called:
        outcome = "dies" if run.exit_code < 0 else "fails"
    elif message:
        outcome = "fails"
    else:
        outcome = "interferes" if unmatched else "agrees"
    return ServedWay(name, WAYS[name], outcome, int(called.get("calls", 0)), unmatched, message)


def _measured(run: RunOutcome, what: str) -> Mapping[str, Any]:
    return next((event for event in run.measured if event.get("what") == what), {})


def _left_by_loading(samples: Sequence[Mapping[str, int]]) -> int | None:
    """Return the bytes that most loads leave; a single load may reuse freed memory."""
    resident = [sample["resident"] for sample in samples]
    steps = [later - earlier for earlier, later in itertools.pairwise(resident)]
    return max(0, int(statistics.median(steps))) if steps else None


def _samples(run: RunOutcome, what: str) -> list[Mapping[str, int]]:
    return list(_measured(run, what).get("samples", ()))


# --- conclusions ----------------------------------------------------------------------------------


def findings_of_serving(serving: Serving, model: PackagedModel) -> Iterator[PackageFinding]:
    """Yield facts, attributed to the container or a kernel only if an experiment shows it."""
    yield from _interference(serving, model)
    for way in serving.ways:
        if way.outcome in ("fails", "dies", "does not end"):
            text = f"Called from {serving.threads} threads ({way.text}), it {way.outcome}"
            text += f": {way.message}" if way.message else "."
            yield PackageFinding("threads_fail", text, "a C++ program made the calls")
    yield from _growth(serving)
    yield from _leaks(serving)
    if serving.streams_different:
        text = (
            f"{count_of(serving.streams_different, 'call')} on several streams gave other results"
        )
        yield PackageFinding("streams_interfere", text, "compared with one call on its own")
    if serving.left_behind is not None and serving.left_behind > 2:
        text = f"Loading and unloading left {count_of(serving.left_behind, 'temporary file')}"
        how = "counted in a temporary folder that only this process used"
        yield PackageFinding("left_behind", text, how)


def _interference(serving: Serving, model: PackagedModel) -> Iterator[PackageFinding]:
    bad = [way for way in serving.ways if way.outcome == "interferes"]
    if not bad:
        return
    worst = bad[0]
    text = (
        f"Calls from {serving.threads} threads interfere ({worst.text}): {worst.unmatched} of "
        f"{count_of(worst.calls, 'result')} match no result that calls one after another give."
    )
    how = "a C++ program made the same calls with the same inputs from one thread and from several"
    yield PackageFinding("threads_interfere", text, how)
    if worst.name == "runners" and serving.way("containers") == "agrees":
        yield _shared_by_runners(model)
    elif serving.way("containers") == "interferes":
        text = (
            "They interfere with a container for each thread, too: the whole process shares what "
            "is at fault, such as a library"
        )
        named = model.custom_operators
        text += f" or a custom operator ({', '.join(named)})." if named else "."
        yield PackageFinding("shared_by_process", text, "tried with separate containers")


def _shared_by_runners(model: PackagedModel) -> PackageFinding:
    """Report interference within a container, whose runners share nothing but constants."""
    written = [c for c in model.wrapper.constants if c.written_by] if model.wrapper else []
    how = "separate containers agree; runners of one container share its constants"
    if not written:
        text = "The runners of one container share something: with separate containers all agree."
        return PackageFinding("shared_by_runners", text, how)
    names = "; ".join(f"{', '.join(c.written_by)} changes {c.name} in place" for c in written)
    text = f"The runners of one container share its buffers: {names}."
    return PackageFinding("shared_by_runners", text, f"{how}, and the wrapper shows the writing")


def _growth(serving: Serving) -> Iterator[PackageFinding]:
    in_cpp = {growth.quantity for growth in serving.growth}
    for growth in serving.growth:
        how = "measured in a C++ program without Python, so it is the package or what it calls"
        yield PackageFinding("grows", growth.text, how)
    for growth in serving.growth_in_python:
        if growth.quantity in in_cpp:
            continue
        how = "measured in Python"
        if serving.not_in_cpp == "":
            how += "; the C++ program does not grow, so it is the Python side"
        yield PackageFinding("grows", growth.text, how)


def _leaks(serving: Serving) -> Iterator[PackageFinding]:
    if serving.leaks is not None:
        both = (*serving.growth_in_python, *serving.growth)
        grown = {growth.quantity: growth for growth in both}
        yield from findings_of_leaks(tuple(grown.values()), serving.leaks)
