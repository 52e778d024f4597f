"""torch's bisector and minifier, as users run them and as fast as they can be run."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from battery.fault import Fault
from battery.judge import occurs
from battery.trial import Outcome, make_environment, run_limited, write_files
from bench.load import cpu_of_children

IN_ONE_PROCESS = Path(__file__).parent / "programs" / "bisect_in_one_process.py"
# A reproducer that takes longer than this to run is not one.
_CHECK_SECONDS = 300.0


@dataclass(frozen=True)
class Measured:
    """One tool's result on one fault; None where it has no such notion or did not get there."""

    seconds: float
    # Whether it ended by itself.
    ended: bool
    runs: int | None = None
    named: bool | None = None
    nodes: int | None = None
    verified: bool | None = None
    said: str = ""
    # Seconds until the culprit was known, and until it was proven.
    culprit_seconds: float | None = None
    proof_seconds: float | None = None
    # Of all its processes.
    cpu_seconds: float | None = None


def bisect(fault: Fault, folder: Path, limit: float) -> Measured:
    """In one process, with torch imported once."""
    script = write_files(fault, folder)
    command = [sys.executable, str(IN_ONE_PROCESS), script.name]
    before = cpu_of_children()
    outcome = _run(command, fault, folder, limit)
    measured = _bisected(fault, outcome, outcome.output.count("a run\n"))
    return replace(measured, cpu_seconds=cpu_of_children() - before)


def bisect_by_command(fault: Fault, folder: Path, limit: float) -> Measured:
    """As its manual says for scripts: a new process for each run."""
    script = write_files(fault, folder)
    counted = folder / "runs.txt"
    # Counts the runs; torch.compile itself asks the bisector which backend is being tried.
    run = f"echo run >> {counted}; exec {sys.executable} {script.name}"
    command = [sys.executable, "-m", "torch._inductor.compiler_bisector", "run", "sh", "-c", run]
    before = cpu_of_children()
    outcome = _run(command, fault, folder, limit)
    runs = len(counted.read_text().splitlines()) if counted.exists() else 0
    return replace(_bisected(fault, outcome, runs), cpu_seconds=cpu_of_children() - before)


def _bisected(fault: Fault, outcome: Outcome, runs: int) -> Measured:
    found = re.findall(r"Bisection complete: (.*)", outcome.output)
    said = found[-1] if found else ""
    return Measured(
        seconds=outcome.seconds,
        ended=outcome.exit_code is not None,
        runs=runs,
        named=any(occurs(name, said) for name in fault.truth.culprit_names),
        said=said or f"exit {outcome.exit_code}: {outcome.output.strip()[-200:]}",
    )


def minify(fault: Fault, folder: Path, limit: float) -> Measured:
    """In one process, which its help calls faster; where that ends without a result, by default."""
    quick = _minify(fault, folder / "quick", limit, ("minify", "--no-isolate"))
    has_result = quick.verified or not quick.ended
    return quick if has_result else _minify(fault, folder / "isolated", limit)


def minify_by_default(fault: Fault, folder: Path, limit: float) -> Measured:
    """A new process for each graph that is tried."""
    return _minify(fault, folder, limit)


def _minify(fault: Fault, folder: Path, limit: float, options: tuple[str, ...] = ()) -> Measured:
    """First the script, which leaves a launcher, then the launcher, which leaves repro.py."""
    script = write_files(fault, folder)
    # Level 4 compares numbers, level 2 waits for an exception.
    level = "4" if fault.truth.kind in ("wrong-result", "nan") else "2"
    asking = {"TORCHDYNAMO_REPRO_AFTER": "aot", "TORCHDYNAMO_REPRO_LEVEL": level}
    before = cpu_of_children()
    first = _run([sys.executable, script.name], fault, folder, limit, asking)
    launchers = [*folder.glob("torch_compile_debug/**/minifier_launcher.py")]
    repro = folder / "repro.py"
    repro.unlink(missing_ok=True)
    if not launchers or first.exit_code is None:
        return Measured(first.seconds, first.exit_code is not None, 1, said="no launcher written")
    command = [sys.executable, str(launchers[-1]), *options]
    second = _run(command, fault, folder, max(1.0, limit - first.seconds))
    queries = re.findall(r"Made (\d+) queries", second.output)
    isolated = len([*folder.glob("isolate/*.py")])
    seconds, ended = first.seconds + second.seconds, second.exit_code is not None
    runs = 2 + (int(queries[-1]) if queries else isolated)
    if not repro.exists():
        return Measured(seconds, ended, runs, said="no repro.py written")
    spent = cpu_of_children() - before
    # Whether it fails is not counted as the tool's time.
    again = _run([sys.executable, repro.name], fault, folder, _CHECK_SECONDS)
    return Measured(
        seconds=seconds,
        ended=ended,
        runs=runs,
        # It shows a graph and leaves it to the reader to tell what in it is wrong.
        named=None,
        nodes=count_nodes(repro.read_text()),
        verified=again.exit_code not in (0, None),
        said="repro.py",
        cpu_seconds=spent,
    )


def _run(
    command: list[str], fault: Fault, folder: Path, limit: float, more: dict[str, str] | None = None
) -> Outcome:
    environment = make_environment(fault, folder, folder / "cache")
    environment.update(TORCH_COMPILE_DEBUG_DIR=str(folder), **(more or {}))
    return run_limited(command, folder, environment, limit)


def count_nodes(text: str) -> int | None:
    """Operations in the forward of a reproducer that the minifier wrote."""
    for found in ast.walk(ast.parse(text)):
        if isinstance(found, ast.FunctionDef) and found.name == "forward":
            calls = [n for n in ast.walk(found) if isinstance(n, ast.Call)]
            return sum("torch.ops." in ast.unparse(call.func) for call in calls)
    return None
