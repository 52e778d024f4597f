"""How long the doctor takes for programs that hang: python -m bench.hang --json FILE.

Each program hangs in another stage of the compiler, in a kernel, or because the C++ compiler never
ends on one kernel. Two times count: until the doctor believes that the program stalled, and from
then to the whole verdict, in which the culprit is named and a reproducer is verified. The second
has a goal. On a machine that does other things as well it says little, so its load is kept, too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from battery.fault import Fault, Recipe
from battery.generate import generate, make_fault
from battery.judge import judge
from battery.trial import run_doctor

# One for each stage in which a compile can hang, a kernel, and the C++ compiler.
FAULTS = (
    "decomposition-leaky-relu-hang",
    "pre-grad-pass-cumsum-hang",
    "post-grad-pass-scatter-add-hang",
    "lowering-sort-hang",
    "scheduler-mean-hang",
    "codegen-erf-hang",
    "cpp-compile-softmax-hang",
)
# A C++ compiler that never ends on kernels with one function, and keeps a core busy.
SPINNING = Recipe(
    "erf",
    "cpp-compile",
    "hang",
    "torch._inductor.config",
    """
import os

path = os.path.join(os.path.dirname(__file__), "g++-spins")
own = f"{path}-{os.getpid()}"
with open(own, "w") as file:
    file.write(r'''#!/bin/sh
for word; do
  case "$word" in
    *.cpp) if grep -q "erf" "$word"; then while :; do :; done; fi ;;
  esac
done
exec g++ "$@"
''')
os.chmod(own, 0o755)
os.replace(own, path)
m.cpp.cxx = (None, path)
""",
    ("erf",),
    detail="spins",
)
# Seconds from the belief to the verdict.
GOAL = 60.0
# Processes that were ready to run for each core, above which the clock says nothing.
MOST_LOAD = 1.5
_BELIEVED = re.compile(r"^\[\s*([\d.]+) s\] the program made no progress", re.MULTILINE)


@dataclass(frozen=True)
class Measured:
    """One examination of a program that hangs; None where it did not get there."""

    # Seconds of the clock: until the stall was believed, and from then to the verdict.
    belief: float | None
    verdict: float | None
    # Seconds of the processor, of all processes.
    cpu: float
    named: bool
    verified: bool
    nodes: int | None
    candidates: int | None
    # Processes that were ready to run, for each core, when it began and when it had ended.
    load: tuple[float, float]
    said: str

    @property
    def is_calm(self) -> bool:
        """Whether the machine did little else."""
        return self.load[0] <= MOST_LOAD


def measure(fault: Fault, folder: Path, limit: float) -> Measured:
    """Examine one program, with an empty cache."""
    before, began = _children_seconds(), _load()
    outcome, verdict = run_doctor(fault, folder, folder / "cache", limit)
    result = judge(fault, verdict, outcome.seconds, outcome.output[-300:])
    found: dict[str, Any] = verdict or {}
    belief = believed_after(outcome.output)
    whole = found.get("seconds")
    return Measured(
        belief=belief,
        verdict=round(whole - belief, 1) if belief is not None and whole is not None else None,
        cpu=round(_children_seconds() - before, 1),
        named=result.named,
        verified=result.verified,
        nodes=result.nodes,
        candidates=found.get("runs"),
        load=(began, _load()),
        said=f"{result.said_kind} · {result.said_stage} · {result.said_summary}",
    )


def believed_after(output: str) -> float | None:
    """When the doctor said that the program had stalled."""
    found = _BELIEVED.search(output)
    return float(found[1]) if found else None


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _load() -> float:
    return round(os.getloadavg()[0] / (os.cpu_count() or 1), 2)


def as_data(rows: dict[str, list[Measured]]) -> dict[str, Any]:
    """Everything measured, run by run, with the machine."""
    return {
        "goal_seconds": GOAL,
        "cores": os.cpu_count(),
        "machine": f"{platform.machine()}, Linux {platform.release()}, Python "
        f"{platform.python_version()}",
        "runs": {name: [asdict(each) for each in row] for name, row in rows.items()},
    }


def report(rows: dict[str, list[Measured]]) -> str:
    """The table, with the median of each program's runs, and whether the goal was reached."""
    header = ("program", "believed", "verdict", "cpu", "culprit", "verified", "nodes", "load")
    lines = ["{:34}{:>10}{:>9}{:>8}{:>9}{:>10}{:>7}{:>7}".format(*header)]
    for name, row in rows.items():
        cells = (
            _seconds([each.belief for each in row]),
            _seconds([each.verdict for each in row]),
            _seconds([each.cpu for each in row]),
            "yes" if all(each.named for each in row) else "no",
            "yes" if all(each.verified for each in row) else "no",
            "-" if row[-1].nodes is None else str(row[-1].nodes),
            f"{max(each.load[0] for each in row):.1f}",
        )
        lines.append("{:34}{:>10}{:>9}{:>8}{:>9}{:>10}{:>7}{:>7}".format(name, *cells))
    return "\n".join([*lines, "", conclusion(rows)])


def _seconds(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.1f}" if known and len(known) == len(values) else "-"


def conclusion(rows: dict[str, list[Measured]]) -> str:
    """Whether every program was explained within the goal; a busy machine decides nothing."""
    every = [each for row in rows.values() for each in row]
    late = [
        name
        for name, row in rows.items()
        if any(each.verdict is None or each.verdict > GOAL for each in row)
    ]
    missed = [name for name, row in rows.items() if not all(r.named and r.verified for r in row)]
    text = f"goal: the verdict within {GOAL:.0f} s after the belief, for every program: "
    if missed:
        return f"{text}missed, not named or not verified: {', '.join(missed)}"
    if not late:
        return f"{text}reached"
    if any(not each.is_calm for each in every):
        return f"{text}not decided, the machine was busy; later than that: {', '.join(late)}"
    return f"{text}missed: {', '.join(late)}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="programs by part of a name")
    parser.add_argument("--turns", type=int, default=1, help="runs of each program")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each run")
    parser.add_argument("--json", type=Path, help="where to keep every run")
    options = parser.parse_args()
    every = [*(fault for fault in generate() if fault.name in FAULTS), make_fault(SPINNING, 0)]
    wanted = options.only or [""]
    faults = [fault for fault in every if any(part in fault.name for part in wanted)]
    rows: dict[str, list[Measured]] = {}
    folder = Path(tempfile.mkdtemp(prefix="bench-hang-"))
    try:
        for turn in range(options.turns):
            for fault in faults:
                found = measure(fault, folder / f"{fault.folder}-{turn}", options.limit)
                rows.setdefault(fault.name, []).append(found)
                said = f"believed {found.belief} s, verdict {found.verdict} s later"
                print(f"  {fault.name} {said}: {found.said[:90]}", file=sys.stderr, flush=True)
                if options.json is not None:  # An interruption loses one run.
                    options.json.write_text(json.dumps(as_data(rows), indent=1))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(report(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
