"""The doctor beside torch's own bisector and minifier, on the same scripts: make bench-doctor.

Six scripts fail: four small ones and two of about 60 operations. The doctor's time is that until
its JSON file names the right culprit for good, and until it has a verified reproducer; workarounds
come later. torch's tools run in two ways. *By default* means the command
`torch._inductor.compiler_bisector run`, and the launcher that the minifier leaves
(TORCHDYNAMO_REPRO_AFTER=aot, level 4 where numbers are wrong, level 2 where something is raised);
both start a process for each run. *In one process* is faster: `CompilerBisector.do_bisect` on a
function that runs the script, and the launcher with `minify --no-isolate`. torch documents both.
Each tool works in its private folder with an empty cache, because the bisector deletes the one that
it runs in. Running a found reproducer once more, to see whether it fails, is not part of the
minifier's time. A tool that does not end within the limit is ended, and counts with the limit. In
each turn the doctor runs before, between and after the others, and the middle of these three runs
counts. The culprit is also compared with what the bisector takes alone, which has no goal. The
goals are for all six scripts together, and count beside torch's tools in one process.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from battery.fault import Fault
from battery.generate import generate
from battery.judge import judge
from battery.trial import run_doctor, run_plain
from battery.workplace import workplace
from bench.doctor_comparison import ToolRun, run_from, summarize
from bench.figures import finish
from bench.load import cpu_of_children
from bench.measurement import write_measurements
from bench.torch_tools import Measured, bisect, bisect_by_command, minify, minify_by_default
from bench.verdict_clock import VerdictClock, first_for_good, is_proven, names_culprit

PROGRAMS = Path(__file__).parent / "programs"
# A plant must leave alone what the minifier itself compiles: it hashes inputs with abs and sum.
SMALL = (
    "lowering-floor-divide-natural-wrong-result",
    "lowering-steep-sigmoid-nan",
    "codegen-index-put-natural-crash",
    "codegen-rsqrt-compile-error",
)
# The same bugs of torch 2.13 that two of the small scripts show, in about 60 operations.
LARGE = {
    "ages_in_buckets": "lowering-floor-divide-natural-wrong-result",
    "rows_without_themselves": "codegen-index-put-natural-crash",
}
SCRIPTS = len(SMALL) + len(LARGE)


def make_faults(seed: int) -> list[Fault]:
    known = {fault.name: fault for fault in generate(seed)}
    large = [
        Fault(f"60 nodes, {truth.stage} {truth.kind}", read_program(name), truth)
        for name, truth in ((name, known[like].truth) for name, like in LARGE.items())
    ]
    return [*(known[name] for name in SMALL), *large]


def read_program(name: str) -> str:
    return (PROGRAMS / f"{name}.py").read_text()


# --- measuring ------------------------------------------------------------------------------------


def examine(fault: Fault, folder: Path, limit: float) -> Measured:
    before = cpu_of_children()
    with VerdictClock(folder / "verdict.json") as clock:
        outcome, verdict = run_doctor(fault, folder, folder / "cache", limit)
    result = judge(fault, verdict, outcome.seconds, outcome.output[-300:])
    ended, runs = outcome.exit_code is not None, (verdict or {}).get("runs")

    # What did not come before the limit counts with it.
    late = None if ended else outcome.seconds

    def names(known: dict[str, Any]) -> bool:
        return names_culprit(known) and judge(fault, known, 0.0).named

    proof = first_for_good(clock.versions, lambda known: names(known) and is_proven(known))
    return Measured(
        seconds=outcome.seconds,
        ended=ended,
        runs=runs if isinstance(runs, int) else None,
        named=result.named,
        nodes=result.nodes,
        verified=result.verified,
        said=f"{result.said_kind} · {result.said_stage} · {result.said_summary}",
        culprit_seconds=first_for_good(clock.versions, names) or late,
        proof_seconds=proof or late,
        cpu_seconds=cpu_of_children() - before,
    )


def run_alone(fault: Fault, folder: Path, limit: float) -> Measured:
    """The script as it is, for comparison."""
    outcome = run_plain(fault, folder, folder / "cache", limit)
    return Measured(outcome.seconds, outcome.exit_code is not None)


TOOLS: dict[str, Callable[[Fault, Path, float], Measured]] = {
    "plain": run_alone,
    "doctor": examine,
    "bisector": bisect,
    "minifier": minify,
    "bisector by command": bisect_by_command,
    "minifier by default": minify_by_default,
}
# One turn: the doctor again and again, as the others drift.
TURN = (
    "plain", "doctor", "bisector", "minifier", "doctor", "bisector by command",
    "minifier by default", "doctor",
)  # fmt: skip


def plan(faults: Sequence[Fault], turns: int, tools: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Runs, in order: every script once, then again."""
    for turn in range(turns):
        for fault in faults:
            for place, tool in enumerate(TURN):
                if tool in tools:
                    yield fault, turn, place, tool


def measure(
    wanted: Sequence[tuple[Any, ...]], runs: list[ToolRun], folder: Path, limit: float
) -> Iterator[ToolRun]:
    """Runs missing in `runs`."""
    known = {run.key for run in runs}
    for fault, turn, place, tool in wanted:
        if (fault.name, turn, place) in known:
            continue
        own = folder / f"{fault.folder}-{turn}-{place}"
        measured = TOOLS[tool](fault, own, limit)
        shutil.rmtree(own / "cache", ignore_errors=True)
        text = f"{measured.seconds:7.1f} s  {measured.said[:100]!r}"
        print(f"  {fault.name} {tool:20}{text}", file=sys.stderr, flush=True)
        yield ToolRun(fault.name, turn, place, tool, measured)


# --- the command ----------------------------------------------------------------------------------


def read_runs(path: Path | None) -> list[ToolRun]:
    """Results left by an interrupted run."""
    try:
        data = json.loads(path.read_text()) if path else {}
        return [run_from(entry) for entry in data.get("runs", ())]
    except (OSError, ValueError, TypeError):
        return []


def write(runs: Sequence[ToolRun], path: Path) -> None:
    """After every run, so that an interruption loses one."""
    write_measurements(summarize(runs, SCRIPTS), path)
    data = {**json.loads(path.read_text()), "runs": [asdict(run) for run in runs]}
    path.write_text(json.dumps(data, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.doctor", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="names that contain NAME")
    parser.add_argument("--tool", action="append", choices=[*TOOLS], help="only this tool")
    parser.add_argument("--turns", type=int, default=1, help="each takes an hour")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a tool on a fault")
    parser.add_argument("--seed", type=int, default=0, help="makes the small programs")
    parser.add_argument(
        "--json", type=Path, help="write every run to this file; what it has is not run again"
    )
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    options = parser.parse_args()
    faults = [
        fault
        for fault in make_faults(options.seed)
        if not options.only or any(name in fault.name for name in options.only)
    ]
    runs = read_runs(options.json)
    with workplace("bench-doctor", options.keep) as folder:
        # The precompiled header, which torch keeps outside of the cache, is counted nowhere.
        run_plain(make_faults(options.seed)[0], folder / "warm", folder / "warm-cache", 300.0)
        wanted = [*plan(faults, options.turns, options.tool or [*TOOLS])]
        for run in measure(wanted, runs, folder, options.limit):
            runs.append(run)
            if options.json:
                write(runs, options.json)
    finish(summarize(runs, SCRIPTS), None)


if __name__ == "__main__":
    main()
