"""Runs a program up to one of its graphs, and has that graph compiled at several sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from inductoscope.doctor.failure import SLOW, Failure
from inductoscope.doctor.handover import read_found
from inductoscope.doctor.instructions import FOLDER, Instructions
from inductoscope.doctor.outside.program import Listener, RunLimits
from inductoscope.doctor.outside.runs import Runs
from inductoscope.profiling.compile_time.recorded_costs import RecordedCosts
from inductoscope.profiling.compile_time.running import MeasuredGrowth

Say = Callable[[str], None]


def measure_growth(
    command: Sequence[str],
    folder: Path,
    costs: RecordedCosts,
    times: int,
    say: Callable[[str], None],
) -> MeasuredGrowth:
    """The program's largest graph, repeated up to so many times."""
    largest = max(costs.compiles, key=lambda each: each.nodes)
    runs = Runs(command, folder, RunLimits(), Listener(say))
    failure = Failure(SLOW, f"compile {largest.compile} is compiled at several sizes")
    instructions = Instructions(calls=0, stop_at=largest.compile, failure=failure, grow=times)
    run = runs.again(instructions, f"running it up to compile {largest.compile}")
    found = read_found(run.folder / FOLDER)
    if found is None or found.growth is None:
        error = "the program did not come to the same compile again"
        return MeasuredGrowth(largest.compile, "", error=error)
    return found.growth
