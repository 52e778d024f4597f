"""The doctor beside torch's own bisector and minifier, on the same scripts: make bench-doctor.

Each fault is given to `inductoscope doctor`, to `torch._inductor.compiler_bisector run` and to the
minifier (TORCHDYNAMO_REPRO_AFTER=aot, level 4 where numbers are wrong, level 2 where something is
raised; the launcher that it leaves is run, as its manual says). Every tool works in folders of its
own with an empty cache, because the bisector deletes the one that it runs in. Running a found
reproducer once more, to see whether it fails, is not counted as the tool's time. A tool that does
not end within the limit is ended, and counts with the limit.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from battery.fault import Fault
from battery.generate import generate
from battery.judge import judge, occurs
from battery.trial import make_environment, run_doctor, run_limited, run_plain, write_files

# One per stage and kind, real bugs of torch 2.13 ("natural") among them.
FAULTS = (
    "decomposition-log-softmax-nan",
    "pre-grad-pass-gelu-wrong-result",
    "joint-pass-attention-natural-wrong-result",
    "post-grad-pass-where-pattern-wrong-result",
    "lowering-floor-divide-natural-wrong-result",
    "lowering-cumsum-crash",
    "scheduler-sum-crash",
    "codegen-argmin-natural-wrong-result",
    "codegen-tanh-wrong-result",
    "codegen-abs-compile-error",
    "codegen-sin-crash",
    "wrapper-full-allocation-wrong-result",
)
GOAL = 0.1


@dataclass(frozen=True)
class Measured:
    """What one tool did about one fault; None where it has no such notion or did not get there."""

    seconds: float
    ended: bool
    runs: int | None = None
    named: bool | None = None
    nodes: int | None = None
    verified: bool | None = None
    said: str = ""


def measure_doctor(fault: Fault, folder: Path, limit: float) -> Measured:
    outcome, verdict = run_doctor(fault, folder, folder / "cache", limit)
    result = judge(fault, verdict, outcome.seconds, outcome.output[-300:])
    return Measured(
        seconds=outcome.seconds,
        ended=outcome.exit_code is not None,
        runs=_find_runs(verdict or {}),
        named=result.named,
        nodes=result.nodes,
        verified=result.verified,
        said=f"{result.said_kind} · {result.said_stage} · {result.said_summary}",
    )


def _find_runs(verdict: dict[str, object]) -> int | None:
    """How many candidates were tried, where the verdict says so."""
    runs = verdict.get("runs")
    return runs if isinstance(runs, int) else None


def measure_bisector(fault: Fault, folder: Path, limit: float) -> Measured:
    script = write_files(fault, folder)
    counted = folder / "runs.txt"
    # Counts the runs; torch.compile itself asks the bisector which backend is being tried.
    run = f"echo run >> {counted}; exec {sys.executable} {script.name}"
    command = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", "sh", "-c", run]
    environment = make_environment(fault, folder, folder / "cache")
    outcome = run_limited(command, folder, environment, limit)
    found = re.findall(r"Bisection complete: (.*)", outcome.output)
    said = found[-1] if found else ""
    return Measured(
        seconds=outcome.seconds,
        ended=outcome.exit_code is not None,
        runs=len(counted.read_text().splitlines()) if counted.exists() else 0,
        named=_names(fault, said),
        said=said or f"exit {outcome.exit_code}: {outcome.output.strip()[-200:]}",
    )


def _names(fault: Fault, said: str) -> bool:
    """Whether a name of the culprit is in what was said."""
    return any(occurs(name, said) for name in fault.truth.culprit_names)


def measure_minifier(fault: Fault, folder: Path, limit: float) -> Measured:
    """First the script, which leaves a launcher, then the launcher, which leaves repro.py."""
    script = write_files(fault, folder)
    level = "4" if fault.truth.kind in ("wrong-result", "nan") else "2"
    environment = make_environment(fault, folder, folder / "cache")
    environment.update(TORCH_COMPILE_DEBUG_DIR=str(folder))
    asking = {**environment, "TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": level}
    first = run_limited([sys.executable, script.name], folder, asking, limit)
    launchers = [*folder.glob("torch_compile_debug/**/minifier_launcher.py")]
    repro = folder / "repro.py"
    repro.unlink(missing_ok=True)
    if not launchers or first.exit_code is None:
        return Measured(first.seconds, first.exit_code is not None, 1, said="no launcher written")
    left = max(1.0, limit - first.seconds)
    command = [sys.executable, str(launchers[-1])]
    second = run_limited(command, folder, environment, left)
    queries = re.findall(r"Made (\d+) queries", second.output)
    isolated = len([*folder.glob("isolate/*.py")])
    seconds, ended = first.seconds + second.seconds, second.exit_code is not None
    runs = 2 + (int(queries[-1]) if queries else isolated)
    if not repro.exists():
        return Measured(seconds, ended, runs, said="no repro.py written")
    again = run_limited([sys.executable, repro.name], folder, environment, 120.0)
    return Measured(
        seconds=seconds,
        ended=ended,
        runs=runs,
        # It shows a graph and leaves it to the reader to tell what in it is wrong.
        named=None,
        nodes=count_nodes(repro.read_text()),
        verified=again.exit_code not in (0, None),
        said="repro.py",
    )


def count_nodes(text: str) -> int | None:
    """Operations in the forward of a reproducer that the minifier wrote."""
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, ast.FunctionDef) and found.name == "forward":
            calls = [n for n in ast.walk(found) if isinstance(n, ast.Call)]
            return sum("torch.ops." in ast.unparse(call.func) for call in calls)
    return None


TOOLS: dict[str, Callable[[Fault, Path, float], Measured]] = {
    "doctor": measure_doctor,
    "bisector": measure_bisector,
    "minifier": measure_minifier,
}

Row = dict[str, Measured]


def measure(
    faults: list[Fault],
    tools: list[str],
    folder: Path,
    limit: float,
    path: Path | None = None,
) -> dict[str, Row]:
    """Each fault with each tool, in turns."""
    found: dict[str, Row] = {fault.name: {} for fault in faults}
    for fault, tool in itertools.product(faults, tools):
        measured = TOOLS[tool](fault, folder / fault.folder / tool, limit)
        found[fault.name][tool] = measured
        text = f"{measured.seconds:7.1f} s  {measured.said[:100]!r}"
        print(f"  {fault.name} {tool:9}{text}", file=sys.stderr, flush=True)
        shutil.rmtree(folder / fault.folder / tool / "cache", ignore_errors=True)
        if path is not None:
            write_json(found, path)
    return found


def write_json(rows: dict[str, Row], path: Path) -> None:
    """After every measurement, so that an interruption loses one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {name: {t: asdict(m) for t, m in row.items()} for name, row in rows.items()}
    path.write_text(json.dumps(found, indent=1))


def report(rows: dict[str, Row]) -> None:
    header = ("fault", "tool", "seconds", "runs", "culprit", "nodes left", "verified")
    print("{:46}{:10}{:>9}{:>7}{:>10}{:>12}{:>10}".format(*header))
    for name, row in rows.items():
        for number, (tool, m) in enumerate(row.items()):
            seconds = f"{'' if m.ended else '>'}{m.seconds:.1f}"
            cells = (_number(m.runs), _yes(m.named), _number(m.nodes), _yes(m.verified))
            start = f"{name if not number else '':46}{tool:10}{seconds:>9}"
            print(start + "{:>7}{:>10}{:>12}{:>10}".format(*cells))
    report_goals(rows)


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _yes(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"


def report_goals(rows: dict[str, Row]) -> None:
    """The goals need all three tools' rows."""
    whole = [row for row in rows.values() if {*row} == {*TOOLS}]
    if not whole:
        return
    ended = [row for row in whole if all(m.ended for m in row.values())]
    print()
    for title, chosen in (("all", whole), ("where every tool ended", ended)):
        doctor = sum(row["doctor"].seconds for row in chosen)
        torchs = sum(row["bisector"].seconds + row["minifier"].seconds for row in chosen)
        if torchs:
            text = f"doctor {doctor:.0f} s, bisector and minifier {torchs:.0f} s"
            ratio = doctor / torchs
            verdict = "met" if ratio <= GOAL else "missed"
            print(f"{title} ({len(chosen)}): {text}; ratio {ratio:.2f}, goal {GOAL}: {verdict}")
    longer = [name for name, row in rows.items() if row in whole and _is_longer(row)]
    unnamed = [name for name, row in rows.items() if row in whole and not row["doctor"].named]
    print(f"more nodes than the minifier: {', '.join(longer) or 'none'}")
    print(f"culprit not named by the doctor: {', '.join(unnamed) or 'none'}")


def _is_longer(row: Row) -> bool:
    doctor, minifier = row["doctor"].nodes, row["minifier"].nodes
    return minifier is not None and (doctor is None or doctor > minifier)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.doctor", description=__doc__)
    parser.add_argument("--only", action="append", metavar="NAME", help="names that contain NAME")
    parser.add_argument("--tool", action="append", choices=[*TOOLS], help="only this tool")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for a tool on a fault")
    parser.add_argument("--seed", type=int, default=0, help="makes the programs")
    parser.add_argument("--json", type=Path, help="also write every measurement to this file")
    parser.add_argument("--keep", type=Path, help="work in this folder, and leave it")
    options = parser.parse_args()
    known = {fault.name: fault for fault in generate(options.seed)}
    names = [n for n in FAULTS if not options.only or any(o in n for o in options.only)]
    folder = options.keep or Path(tempfile.mkdtemp(prefix="bench-doctor-"))
    try:
        # The precompiled header, which torch keeps outside of the cache, is counted nowhere.
        run_plain(known["healthy-honest-nan"], folder / "warm", folder / "warm-cache", 300.0)
        tools = options.tool or [*TOOLS]
        faults = [known[name] for name in names]
        rows = measure(faults, tools, folder, options.limit, options.json)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    report(rows)


if __name__ == "__main__":
    main()
