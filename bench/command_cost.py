"""Cost of a command: seconds by the clock, and processor seconds of it and of its children."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.load import cpu_of_children


@dataclass(frozen=True)
class CommandCost:
    """Cost of one run."""

    seconds: float
    cpu_seconds: float
    exit_code: int


def run_command(command: Sequence[str], folder: Path | None = None) -> CommandCost:
    """Run a command to its end; what it prints is dropped."""
    used, start = cpu_of_children(), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    seconds = time.perf_counter() - start
    return CommandCost(seconds, cpu_of_children() - used, done.returncode)


def column(runs: Sequence[CommandCost], key: str, fine: Sequence[int]) -> tuple[float | None, ...]:
    """One figure of all runs; None for those that ended with another exit code than these."""
    return tuple(getattr(run, key) if run.exit_code in fine else None for run in runs)


def why_failed(runs: Sequence[CommandCost], fine: Sequence[int]) -> str:
    """Empty where all runs ended with one of these exit codes."""
    codes = sorted({run.exit_code for run in runs if run.exit_code not in fine})
    return f"exit code {', '.join(map(str, codes))}" if codes else ""
