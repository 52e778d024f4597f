"""The doctor beside torch's own bisector and minifier, on the same scripts: make bench-doctor.

Six scripts fail: four small ones and two of about 60 operations. The doctor's time is that until
its JSON file names the right culprit for good, and until it has a verified reproducer; workarounds
come later. torch's tools run in two ways. *As documented* means the command
`torch._inductor.compiler_bisector run`, and the launcher that the minifier leaves
(TORCHDYNAMO_REPRO_AFTER=aot, level 4 where numbers are wrong, level 2 where something is raised).
*At their best* means that neither starts a process for each run: `CompilerBisector.do_bisect` on a
function that runs the script, and the launcher with `minify --no-isolate`. Each tool works in its
private folder with an empty cache, because the bisector deletes the one that it runs in. Running a
found reproducer once more, to see whether it fails, is not part of the minifier's time. A tool that
does not end within the limit is ended, and counts with the limit. In each turn the doctor runs
before, between and after the others.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from battery.fault import Fault
from battery.generate import generate
from battery.judge import judge
from battery.trial import run_doctor, run_plain
from bench.load import adopt_orphans, cpu_of_children
from bench.measurement import Measurement, add_up, write_measurements
from bench.torch_tools import Measured, bisect, bisect_by_command, minify, minify_by_default
from bench.verdict_clock import VerdictClock, first_for_good, is_proven, names_culprit

PROGRAMS = Path(__file__).parent / "programs"
GOALS = {"culprit": 1 / 25, "culprit and reproducer": 1 / 12}
# The last is not a goal: processor seconds of everything, also of what comes after the proof.
QUANTITIES = {**GOALS, "processor seconds": None}
WAYS = {
    "as documented": ("bisector by command", "minifier by default"),
    "at their best": ("bisector", "minifier"),
}
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


@dataclass(frozen=True)
class Run:
    """One tool on one script; its place tells apart the doctor's runs of a turn."""

    script: str
    turn: int
    place: int
    tool: str
    measured: Measured

    @property
    def key(self) -> tuple[str, int, int]:
        return self.script, self.turn, self.place


def run_from(data: dict[str, Any]) -> Run:
    return Run(**{**data, "measured": Measured(**data["measured"])})


def plan(faults: Sequence[Fault], turns: int, tools: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """What runs, in order: every script once, then again."""
    for turn in range(turns):
        for fault in faults:
            for place, tool in enumerate(TURN):
                if tool in tools:
                    yield fault, turn, place, tool


def measure(
    wanted: Sequence[tuple[Any, ...]], runs: list[Run], folder: Path, limit: float
) -> Iterator[Run]:
    """What is missing in `runs`."""
    known = {run.key for run in runs}
    for fault, turn, place, tool in wanted:
        if (fault.name, turn, place) in known:
            continue
        own = folder / f"{fault.folder}-{turn}-{place}"
        measured = TOOLS[tool](fault, own, limit)
        shutil.rmtree(own / "cache", ignore_errors=True)
        text = f"{measured.seconds:7.1f} s  {measured.said[:100]!r}"
        print(f"  {fault.name} {tool:20}{text}", file=sys.stderr, flush=True)
        yield Run(fault.name, turn, place, tool, measured)


# --- what follows ---------------------------------------------------------------------------------


def summarize(runs: Sequence[Run]) -> list[Measurement]:
    """Each script, then all of them together, beside torch's tools run in both ways."""
    scripts = [*dict.fromkeys(run.script for run in runs)]
    found = []
    for way, tools in WAYS.items():
        for what in QUANTITIES:
            each = [_compare(script, runs, what, way, tools) for script in scripts]
            whole = [m for m in each if m.values]
            if len(whole) > 1:
                name = f"{what}: all of {len(whole)} scripts"
                found.append(add_up(name, whole))
            found += each
    return found


def _compare(
    script: str, runs: Sequence[Run], what: str, way: str, tools: tuple[str, ...]
) -> Measurement:
    mine = [run for run in runs if run.script == script]
    doctors = [run for run in mine if run.tool == "doctor"]
    ours = tuple(_seconds_until(what, run.measured) for run in doctors)
    failed = [run.measured.said for run, value in zip(doctors, ours, strict=True) if value is None]
    theirs = [_theirs(what, mine, run.turn, tools) for run in doctors]
    return Measurement(
        name=f"{what}: {script}",
        unit="CPU s" if what == "processor seconds" else "s",
        ours=ours,
        goal=QUANTITIES[what],
        compared_with=f"bisector and minifier {way}",
        peer=tuple(seconds for seconds, _ in theirs),
        why_no_peer="; ".join(dict.fromkeys(why for _, why in theirs if why)),
        why_failed="; ".join(dict.fromkeys(failed)),
        note=_describe(mine, tools) if what == "culprit and reproducer" else "",
    )


def _seconds_until(what: str, measured: Measured) -> float | None:
    if what == "processor seconds":
        return measured.cpu_seconds
    return measured.culprit_seconds if what == "culprit" else measured.proof_seconds


def _theirs(
    what: str, runs: Sequence[Run], turn: int, tools: tuple[str, ...]
) -> tuple[float | None, str]:
    """What both took together; None if one of them has no result, and which."""
    found = [run for run in runs if run.turn == turn and run.tool in tools]
    if len(found) < len(tools):
        return None, "not run"
    without = [run for run in found if run.measured.ended and not _has_result(run.measured)]
    if without:
        return None, "; ".join(f"{run.tool}: {run.measured.said[-100:]}" for run in without)
    if what == "processor seconds":
        return sum(run.measured.cpu_seconds or 0.0 for run in found), ""
    return sum(run.measured.seconds for run in found), ""


def _has_result(measured: Measured) -> bool:
    """A bisector's answer, right or wrong, or a reproducer that fails."""
    return measured.verified is True or measured.said.startswith("BisectionResult")


def _describe(runs: Sequence[Run], tools: tuple[str, ...]) -> str:
    """What the figures leave out."""
    ways = ("plain", "doctor", *tools)
    told = {tool: [run.measured for run in runs if run.tool == tool] for tool in ways}
    return "; ".join(
        f"{_NAMES.get(tool, tool)} {_tell(all_)}" for tool, all_ in told.items() if all_
    )


_NAMES = {"plain": "the script alone", "doctor": "the whole examination"}


def _tell(runs: Sequence[Measured]) -> str:
    """How long it took in all, and how it ended."""
    seconds = " and ".join(f"{m.seconds:.0f} s" for m in runs)
    nodes = sorted({m.nodes for m in runs if m.nodes is not None})
    return "".join(
        (
            seconds,
            "" if all(m.ended for m in runs) else " (ended by the limit)",
            " (names another culprit)" if any(m.named is False for m in runs) else "",
            f" (nodes left: {', '.join(map(str, nodes))})" if nodes else "",
        )
    )


# --- the command ----------------------------------------------------------------------------------


def read_runs(path: Path | None) -> list[Run]:
    """What an interrupted run has left."""
    try:
        data = json.loads(path.read_text()) if path else {}
        return [run_from(entry) for entry in data.get("runs", ())]
    except (OSError, ValueError, TypeError):
        return []


def write(runs: Sequence[Run], path: Path) -> None:
    """After every run, so that an interruption loses one."""
    write_measurements(summarize(runs), path)
    data = {**json.loads(path.read_text()), "runs": [asdict(run) for run in runs]}
    path.write_text(json.dumps(data, indent=1) + "\n")


def show(runs: Sequence[Run]) -> None:
    for measurement in summarize(runs):
        middle = f"{measurement.middle:.3f}" if measurement.middle is not None else "-"
        print(f"{measurement.name:60}{measurement.compared_with:42}{middle:>8}")
        print(f"  {measurement.conclude()}")


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
    folder = options.keep or Path(tempfile.mkdtemp(prefix="bench-doctor-"))
    # What was started ends with us, also when we are asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    runs = read_runs(options.json)
    adopt_orphans()
    try:
        # The precompiled header, which torch keeps outside of the cache, is counted nowhere.
        run_plain(make_faults(options.seed)[0], folder / "warm", folder / "warm-cache", 300.0)
        wanted = [*plan(faults, options.turns, options.tool or [*TOOLS])]
        for run in measure(wanted, runs, folder, options.limit):
            runs.append(run)
            if options.json:
                write(runs, options.json)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    show(runs)


if __name__ == "__main__":
    main()
