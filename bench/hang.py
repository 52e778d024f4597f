"""How long the doctor takes for programs that hang: make bench-hang.

Each program hangs in another stage of the compiler, in a kernel, or because the C++ compiler never
ends on one kernel. Two times count: until the doctor believes that the program stalled, and from
then to the whole verdict, in which the culprit is named and a reproducer is verified. The second
has a goal.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battery.fault import Fault, Recipe
from battery.generate import generate, make_fault
from battery.judge import judge
from battery.trial import run_doctor
from battery.workplace import workplace
from bench.figures import finish
from bench.load import cpu_of_children
from bench.measurement import Measurement

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
_BELIEVED = re.compile(r"^\[\s*([\d.]+) s\] the program made no progress", re.MULTILINE)


@dataclass(frozen=True)
class ExaminedHang:
    """One examination of a program that hangs; None where it did not get there."""

    # Seconds of the clock: until the stall was believed, and from then to the verdict.
    belief: float | None
    verdict: float | None
    # Seconds of the processor, of all processes.
    cpu: float
    named: bool
    verified: bool
    nodes: int | None
    said: str

    @property
    def proof(self) -> float | None:
        """Seconds from the belief to a verdict that is right and proven."""
        return self.verdict if self.named and self.verified else None


def measure(fault: Fault, folder: Path, limit: float) -> ExaminedHang:
    """Examine one program, with an empty cache."""
    before = cpu_of_children()
    outcome, verdict = run_doctor(fault, folder, folder / "cache", limit)
    result = judge(fault, verdict, outcome.seconds, outcome.output[-300:])
    found: dict[str, Any] = verdict or {}
    belief = believed_after(outcome.output)
    whole = found.get("seconds")
    return ExaminedHang(
        belief=belief,
        verdict=round(whole - belief, 1) if belief is not None and whole is not None else None,
        cpu=round(cpu_of_children() - before, 1),
        named=result.named,
        verified=result.verified,
        nodes=result.nodes,
        said=f"{result.said_kind} · {result.said_stage} · {result.said_summary}",
    )


def believed_after(output: str) -> float | None:
    """When the doctor said that the program had stalled."""
    found = _BELIEVED.search(output)
    return float(found[1]) if found else None


def summarize(rows: dict[str, list[ExaminedHang]]) -> list[Measurement]:
    """Until a hang is believed, and from then to a proven verdict, program by program."""
    return [measurement for name, runs in rows.items() for measurement in _of_program(name, runs)]


def _of_program(name: str, runs: Sequence[ExaminedHang]) -> Iterator[Measurement]:
    unproven = "; ".join(dict.fromkeys(run.said for run in runs if run.proof is None))
    nodes = sorted({run.nodes for run in runs if run.nodes is not None})
    yield Measurement(
        name=f"{name}: from the belief to the proof",
        unit="s",
        ours=tuple(run.proof for run in runs),
        goal=GOAL,
        why_failed=unproven,
        note=f"nodes left: {', '.join(map(str, nodes))}" if nodes else "",
    )
    beliefs = tuple(run.belief for run in runs)
    yield Measurement(f"{name}: until a hang is believed", "s", beliefs, why_failed="never")
    yield Measurement(f"{name}: all processes", "CPU s", tuple(run.cpu for run in runs))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hang", description=__doc__)
    parser.add_argument("--only", action="append", default=[], help="programs by part of a name")
    parser.add_argument("--turns", type=int, default=1, help="runs of each program")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for each run")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    every = [*(fault for fault in generate() if fault.name in FAULTS), make_fault(SPINNING, 0)]
    wanted = options.only or [""]
    faults = [fault for fault in every if any(part in fault.name for part in wanted)]
    rows: dict[str, list[ExaminedHang]] = {fault.name: [] for fault in faults}
    with workplace("bench-hang") as folder:
        for turn in range(options.turns):
            for fault in faults:
                found = measure(fault, folder / f"{fault.folder}-{turn}", options.limit)
                rows[fault.name].append(found)
                said = f"believed {found.belief} s, verdict {found.verdict} s later"
                print(f"  {fault.name} {said}: {found.said[:90]}", file=sys.stderr, flush=True)
    finish(summarize(rows), options.json)


if __name__ == "__main__":
    main()
