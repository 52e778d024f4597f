"""Cost of recording, beside torch's own ways of tracing: make bench-capture.

For each model the modes run in turns, each run in a new process with an empty cache. Compared is
CPU time of the whole process tree, which a noisy machine disturbs less than the clock. The
precompiled C++ header, which torch keeps outside the cache folder, is made once beforehand and
counted nowhere. Later calls of the compiled function are timed in further runs, with a warm cache,
because one process differs from the next by more than what is looked for: it takes many. A ratio is
the middle one of the ratios of runs of the same turn, so that what drifts on the machine drops out.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from battery.models.trial import read_operations
from battery.workplace import workplace
from bench.figures import finish
from bench.load import cpu_of_children
from bench.measurement import Measurement
from bench.report import size_of

HERE = Path(__file__).resolve().parent
TOOL = [sys.executable, "-m", "inductoscope", "run", "--quiet", "--output"]
MODELS = ("mlp forward", "encoder forward+backward", "resnet forward+backward")
GOALS = {"compile": 1.05, "calls": 1.01}

Variables = dict[str, str]
# The command's prefix and the variables that a mode adds, given a folder of the run's own.
Mode = Callable[[Path], tuple[list[str], Variables]]

MODES: dict[str, Mode] = {
    "plain": lambda folder: ([sys.executable], {}),
    "recorded": lambda folder: ([*TOOL, str(folder / "recording")], {}),
    "TORCH_TRACE": lambda folder: ([sys.executable], {"TORCH_TRACE": str(folder / "trace")}),
    "TORCH_LOGS=+inductor": lambda folder: ([sys.executable], {"TORCH_LOGS": "+inductor"}),
    "TORCH_COMPILE_DEBUG": lambda folder: ([sys.executable], {"TORCH_COMPILE_DEBUG": "1"}),
}


def run_once(mode: str, model: str, cache: Path | None = None) -> dict[str, float]:
    """One run: CPU seconds of the process tree, and of one later call."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix, variables = MODES[mode](folder)
        variables["TORCHINDUCTOR_CACHE_DIR"] = str(cache or folder / "cache")
        before = cpu_of_children()
        done = subprocess.run(
            [*prefix, str(HERE / "programs" / "models.py"), model],
            cwd=folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            text=True,
        )
        seconds = cpu_of_children() - before
    call = json.loads(done.stdout.splitlines()[-1])["seconds_per_call"]
    return {"compile": seconds, "calls": call}


def weigh_recording(model: str) -> dict[str, int]:
    """Bytes of a recording, and the operations that Dynamo captured in it."""
    with tempfile.TemporaryDirectory() as name:
        recording = Path(name) / "recording"
        command = [*TOOL, str(recording), str(HERE / "programs" / "models.py"), model]
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(Path(name) / "cache")}
        subprocess.run(
            command,
            cwd=name,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        return {"bytes": size_of(recording), "nodes": read_operations(recording)[0]}


def measure_compiles(model: str, rounds: int, others: int) -> dict[str, list[float]]:
    """CPU seconds of runs with an empty cache, the modes in turns."""
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for turn in range(rounds):
        for mode in MODES:
            if mode in ("plain", "recorded") or turn < others:
                found[mode].append(run_once(mode, model)["compile"])
                _progress(turn, mode, f"{found[mode][-1]:7.2f} CPU s")
    return found


def measure_calls(model: str, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of a later call, in processes that take turns."""
    found: dict[str, list[float]] = {"plain": [], "recorded": []}
    with tempfile.TemporaryDirectory() as cache:
        run_once("plain", model, Path(cache))
        for turn in range(rounds):
            for mode in found:
                found[mode].append(run_once(mode, model, Path(cache))["calls"])
                _progress(turn, mode, f"{found[mode][-1] * 1e6:9.1f} CPU µs a call")
    return found


def _progress(turn: int, mode: str, text: str) -> None:
    print(f"  turn {turn + 1} {mode:22} {text}", file=sys.stderr, flush=True)


NAMES = {"compile": "compile", "calls": "a later call"}
Figures = dict[str, dict[str, list[float]]]


def compare(what: str, models: Figures) -> Iterator[Measurement]:
    """Recorded runs beside plain ones of the same turn, and torch's own tracing beside them."""
    for model, runs in models.items():
        for mode, seconds in runs.items():
            if mode != "plain" and seconds:
                yield Measurement(
                    name=f"{model}: {NAMES[what]}, {mode}",
                    unit="CPU s",
                    ours=(*seconds,),
                    goal=GOALS[what] if mode == "recorded" else None,
                    compared_with="the plain run",
                    peer=(*runs["plain"][: len(seconds)],),
                )


def weigh(weights: dict[str, dict[str, int]]) -> Iterator[Measurement]:
    """Bytes of a node on disk."""
    for model, weight in weights.items():
        each = weight["bytes"] / weight["nodes"]
        yield Measurement(f"{model}: recording, for each node", "bytes", (each,))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.capture", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of plain and of recorded each")
    parser.add_argument("--others", type=int, default=2, help="runs of each other mode")
    parser.add_argument("--call-rounds", type=int, default=9, help="runs for later calls, each")
    parser.add_argument("--model", action="append", choices=MODELS, help="only this model")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    models = options.model or MODELS
    with workplace("bench-capture"):
        run_once("plain", MODELS[0])
        weights = {model: weigh_recording(model) for model in models}
        compiles = {m: measure_compiles(m, options.rounds, options.others) for m in models}
        calls = {m: measure_calls(m, options.call_rounds) for m in models if options.call_rounds}
    found = [*compare("compile", compiles), *compare("calls", calls), *weigh(weights)]
    finish(found, options.json)


if __name__ == "__main__":
    main()
