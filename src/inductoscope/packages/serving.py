"""Runs a package as a server would: from several threads, without Python, many times.

The calls of one thread give the results that are expected, in a process of their own. Whatever the
order in which several threads call with the same inputs, together they have to give the same
results; where they do not, calls interfered with each other. Which ways of calling interfere says
what they share.
"""

from __future__ import annotations

import itertools
import math
import re
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from inductoscope.packages import cpp_library
from inductoscope.packages.cpp_program import ServerRun, build_program, call_program
from inductoscope.packages.execution import (
    PackageFinding,
    RunOutcome,
    RunRequest,
    limits_for,
)
from inductoscope.packages.fitting import LocalMachine
from inductoscope.packages.leaks import (
    Growth,
    LeakTrials,
    findings_of_leaks,
    growths,
    look_for_leaks,
)
from inductoscope.packages.package import Package, PackagedModel
from inductoscope.wording import count_of

# The ways to call from several threads: what the container is like, and what it is called.
WAYS = {
    "queue": "one container with one runner",
    "runners": "one container with a runner for each thread",
    "containers": "a container for each thread",
}
_SEEDS = ("1", "2")
_MOST_KEPT = 512 << 20  # bytes of outputs that are kept to be compared


@dataclass(frozen=True)
class ServedWay:
    """One way of calling from several threads."""

    name: str
    text: str
    outcome: str  # agrees, interferes, fails, dies, does not end, not tried
    calls: int
    unmatched: int
    message: str


@dataclass(frozen=True)
class Serving:
    """What was seen."""

    threads: int
    calls: int
    problem: str  # why there was no C++ program; empty if there was one
    is_deterministic: bool | None
    state: str  # none, container, process, unknown: where results depend on earlier calls
    ways: tuple[ServedWay, ...]
    growth: tuple[Growth, ...]  # in the C++ program
    growth_in_python: tuple[Growth, ...]
    # None is what was not measured.
    left_behind: int | None  # files in the temporary folder after loading and unloading
    streams_different: int | None
    # Bytes that loading and deleting it leaves in the process, and copies of its library there.
    left_by_loading: int | None = None
    still_mapped: int | None = None
    trials: LeakTrials | None = None  # of what leaks, if something grows
    growth_measured: bool = False  # in C++ or in Python

    def way(self, name: str) -> str:
        """The outcome of a way."""
        return next((way.outcome for way in self.ways if way.name == name), "not tried")


def serve(
    package: Package,
    model: PackagedModel,
    request: RunRequest,
    run: RunOutcome,
    here: LocalMachine,
    folder: Path,
    on_step: Callable[[str], None],
) -> Serving:
    """Call from several threads in C++. `run` has what repeated calls in Python gave."""
    problem = _not_for_cpp(model, request)
    ways: tuple[ServedWay, ...] = ()
    deterministic: bool | None = None
    state = "unknown"
    samples: Sequence[Mapping[str, int]] = ()
    if not problem:
        on_step("building the C++ program")
        built = build_program(here, folder, request.limits)
        problem = built.problem
        if built.path is not None:
            fewer = replace(request, serve={**request.serve, "calls": calls_to_keep(request, run)})
            caller = _Caller(package, model, fewer, folder, built.path)
            on_step("calling it from C++, one call after another")
            first, second = (caller.call("serial", seed) for seed in _SEEDS)
            problem = _failure(first) or _failure(second)
            if not problem:
                deterministic = _same_outputs(folder)
                state = _state(first, caller.call("fresh", _SEEDS[0]))
                for name in WAYS if deterministic else ():
                    on_step(f"calling it from {caller.threads} threads: {WAYS[name]}")
                    ways += (_way(name, caller.call(_as_called(name, state), _SEEDS[0])),)
                on_step("watching memory, files and threads")
                samples = caller.call("growth", _SEEDS[0]).samples
    growth, in_python = growths(samples), growths(_samples(run, "calls"))
    loading = _measured(run, "loading")
    trials = None
    if growth or in_python:
        trials = look_for_leaks(package, model, request, folder / "leaks", on_step)
    return Serving(
        threads=request.serve["threads"],
        calls=request.serve["calls"],
        problem=problem,
        is_deterministic=deterministic,
        state=state,
        ways=ways,
        growth=growth,
        growth_in_python=in_python,
        left_behind=loading.get("left"),
        streams_different=_measured(run, "streams").get("different"),
        left_by_loading=_left_by_loading(_samples(run, "loading")),
        still_mapped=loading.get("mapped"),
        trials=trials,
        growth_measured=bool(samples or _samples(run, "calls")),
    )


def calls_to_keep(request: RunRequest, run: RunOutcome) -> int:
    """As many calls as were asked for, unless their outputs would fill the memory."""
    one = sum(math.prod(output["sizes"]) * _width(output["dtype"]) for output in run.outputs)
    most = max(2 * request.serve["threads"], _MOST_KEPT // max(one, 1))
    return int(min(request.serve["calls"], most))


def _width(dtype: str) -> int:
    """Bytes of one element, by the number in its name."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def _not_for_cpp(model: PackagedModel, request: RunRequest) -> str:
    python = [path.name for path in request.operators if path.suffix == ".py"]
    if python:
        return f"{', '.join(python)} defines operators in Python, which a C++ program cannot call"
    if model.weights_files:
        return "its weights are in files of the package, which the C++ loader does not read"
    return ""


class _Caller:
    """Runs the program in one way after another, each in a process of its own."""

    def __init__(
        self,
        package: Package,
        model: PackagedModel,
        request: RunRequest,
        folder: Path,
        program: Path,
    ) -> None:
        self.threads = request.serve["threads"]
        self._package, self._model, self._request = package, model, request
        self._folder, self._program = folder, program

    def call(self, way: str, seed: str) -> ServerRun:
        outputs = self._folder / f"serial_{seed}.bin"
        # As many calls for each thread.
        calls = self._request.serve["calls"] // self.threads * self.threads
        words = [
            *(way, str(self._package.path.absolute()), self._model.name),
            *(str(self._folder / "inputs.txt"), str(outputs)),
            *(str(self.threads), str(calls), seed),
            *(str(path.absolute()) for path in self._request.operators),
        ]
        limits = limits_for(self._model, self._request.limits)
        first = cpp_library.preloaded() if self._request.cpp_library_first else {}
        return call_program(self._program, words, limits, self._folder, first)


def _state(serial: ServerRun, fresh: ServerRun) -> str:
    """Where the model keeps what changes from call to call.

    A second container that gives what the first one gave begins anew, so nothing else has changed.
    """
    called, again = serial.event("called"), fresh.event("called")
    if called is None or again is None or _failure(fresh):
        return "unknown"
    if called["distinct"] == 1:
        return "none"
    return "process" if again["unmatched"] else "container"


def _as_called(name: str, state: str) -> str:
    """What containers of their own are expected to give depends on where the state is."""
    return "containers-common" if name == "containers" and state == "process" else name


def _same_outputs(folder: Path) -> bool:
    """Whether calls one after another give the same with other seeds for random numbers."""
    first, second = ((folder / f"serial_{seed}.bin").read_bytes() for seed in _SEEDS)
    return first == second


def _failure(run: ServerRun) -> str:
    """Why a run of the program says nothing; empty if it ended well."""
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


def _numbers(event: Mapping[str, Any]) -> Mapping[str, int]:
    return {name: int(value) for name, value in event.items() if isinstance(value, (int, float))}


def _measured(run: RunOutcome, what: str) -> Mapping[str, Any]:
    return next((event for event in run.measured if event.get("what") == what), {})


def _left_by_loading(samples: Sequence[Mapping[str, int]]) -> int | None:
    """What most loads leave; one of them may find memory that another has given back."""
    resident = [sample["resident"] for sample in samples]
    steps = [later - earlier for earlier, later in itertools.pairwise(resident)]
    return max(0, int(statistics.median(steps))) if steps else None


def _samples(run: RunOutcome, what: str) -> list[Mapping[str, int]]:
    return [_numbers(sample) for sample in _measured(run, what).get("samples", ())]


# --- what follows ---------------------------------------------------------------------------------


def findings_of_serving(serving: Serving, model: PackagedModel) -> Iterator[PackageFinding]:
    """Facts, put down to the container or a kernel only where an experiment shows it."""
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
    """Runners of one container have their constants in common, and nothing else of the model."""
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
        if serving.problem == "":
            how += "; the C++ program does not grow, so it is the Python side"
        yield PackageFinding("grows", growth.text, how)


def _leaks(serving: Serving) -> Iterator[PackageFinding]:
    if serving.trials is not None:
        grown = {growth.quantity: growth for growth in serving.growth_in_python}
        grown |= {growth.quantity: growth for growth in serving.growth}
        yield from findings_of_leaks(tuple(grown.values()), serving.trials)
