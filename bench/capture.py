"""What recording costs, beside what torch's own ways of tracing cost: make bench-capture.

For each model the modes run in turns, each run in a new process with an empty cache. Compared is
CPU time of the whole process tree, which a noisy machine disturbs less than the clock, and the CPU
time of a call of the compiled function once everything is compiled. The precompiled C++ header,
which torch keeps outside of the cache folder, is made once beforehand and counted nowhere.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

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


def run_once(mode: str, model: str) -> dict[str, float]:
    """One run: CPU seconds of the process tree, and of one later call."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        prefix, variables = MODES[mode](folder)
        cache = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "COLUMNS": "80"}
        before = _cpu_seconds()
        done = subprocess.run(
            [*prefix, str(HERE / "models.py"), model],
            cwd=folder,
            env={**os.environ, **cache, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            check=True,
            text=True,
        )
        seconds = _cpu_seconds() - before
    call = json.loads(done.stdout.splitlines()[-1])["seconds_per_call"]
    return {"compile": seconds, "calls": call}


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(model: str, rounds: int, others: int) -> dict[str, list[dict[str, float]]]:
    """All runs of one model, the modes in turns."""
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    for turn in range(rounds):
        for mode in MODES:
            if mode in ("plain", "recorded") or turn < others:
                found[mode].append(run_once(mode, model))
                last = found[mode][-1]["compile"]
                print(f"  turn {turn + 1} {mode:22} {last:7.2f} CPU s", file=sys.stderr, flush=True)
    return found


def ratio(runs: dict[str, list[dict[str, float]]], mode: str, what: str) -> float:
    """The median of a mode over the median of plain."""
    middle = {m: statistics.median(run[what] for run in runs[m]) for m in ("plain", mode)}
    return middle[mode] / middle["plain"]


def report(model: str, runs: dict[str, list[dict[str, float]]]) -> None:
    print(f"\n{model}")
    print(f"  {'mode':22}{'runs':>5}  {'CPU s: median (min … max)':30}{'÷ plain':>8}{'call ÷':>8}")
    for mode, results in runs.items():
        if not results:
            continue
        seconds = [run["compile"] for run in results]
        spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f} … {max(seconds):.2f})"
        compile_, calls = ratio(runs, mode, "compile"), ratio(runs, mode, "calls")
        print(f"  {mode:22}{len(results):5}  {spread:30}{compile_:8.3f}{calls:8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of plain and of recorded each")
    parser.add_argument("--others", type=int, default=2, help="runs of each other mode")
    parser.add_argument("--model", action="append", choices=MODELS, help="only this model")
    parser.add_argument("--json", type=Path, help="also write every measurement to this file")
    options = parser.parse_args()
    run_once("plain", MODELS[0])
    everything = {}
    for model in options.model or MODELS:
        print(f"{model}: {options.rounds} turns", file=sys.stderr, flush=True)
        everything[model] = measure(model, options.rounds, options.others)
        report(model, everything[model])
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(everything, indent=1))
    print()
    for what, goal in GOALS.items():
        worst = max(ratio(runs, "recorded", what) for runs in everything.values())
        verdict = "met" if worst <= goal else "missed"
        print(f"{what}: recorded ÷ plain is {worst:.3f} at worst; goal {goal:.2f}: {verdict}")


if __name__ == "__main__":
    main()
