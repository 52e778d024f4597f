"""Times of `profile` on a GPU, beside torch.profiler and Nsight Compute.

    python -m bench.gpu_agreement

Reads what was recorded on an H200 (bench/recorded/h200; ten_kernels.py there says how) and prints
three tables: times of kernels beside torch.profiler's, and the bytes of floors, of all and of reads
alone, beside those that went to and from the GPU's memory.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RECORDED = Path(__file__).with_name("recorded") / "h200"

# Kernels that take less say more of their launch than of themselves, and those that move less
# stay in the cache.
_LEAST_SECONDS = 100e-6
_LEAST_BYTES = 1 << 20


@dataclass(frozen=True)
class Agreement:
    """One kernel: what the profile says, and what the other tool measured."""

    kernel: str
    said: float
    measured: float

    @property
    def apart(self) -> float:
        """How far the two are apart, relative to what was measured."""
        return abs(self.said - self.measured) / self.measured


def times(folder: Path = RECORDED) -> list[Agreement]:
    """Seconds of a call, of the kernels that torch.profiler saw take long."""
    said = {row["kernel"]: row["seconds"]["median"] for row in _kernels(folder)}
    found = []
    for line in (folder / "torch_profiler.txt").read_text("utf-8").splitlines():
        name, _, mean, _ = line.rsplit(maxsplit=3)
        # The product is a kernel of cuBLAS, which the wrapper calls by another name.
        known = "extern_kernels.mm" if name.startswith("nvjet") else name
        if known in said and float(mean) / 1e6 > _LEAST_SECONDS:
            found.append(Agreement(known, said[known], float(mean) / 1e6))
    return found


def moved(folder: Path = RECORDED, *, reads_alone: bool = False) -> list[Agreement]:
    """Bytes of a call; of what Nsight Compute measured, the median of all calls."""
    ways = ("read",) if reads_alone else ("read", "write")
    with (folder / "ncu.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = []
    for row in _kernels(folder):
        parts = [
            [
                int(r["Metric Value"].replace(",", ""))
                for r in rows
                if r["Kernel Name"] == row["kernel"]
                and r["Metric Name"] == f"dram__bytes_{way}.sum"
            ]
            for way in ways
        ]
        said = row["read"] + (0 if reads_alone else row["written"])
        if all(parts) and said >= _LEAST_BYTES:
            measured = sum(statistics.median(values) for values in parts)
            found.append(Agreement(row["kernel"], said, measured))
    return found


def within(rows: Sequence[Agreement], share: float) -> int:
    """How many are no further apart than this."""
    return sum(row.apart <= share for row in rows)


def table(rows: Sequence[Agreement], unit: str, scale: float) -> str:
    """The rows as Markdown."""
    lines = [f"| kernel | `profile`, {unit} | measured, {unit} | apart |", "|---|---|---|---|"]
    for row in rows:
        said, measured = row.said * scale, row.measured * scale
        lines.append(f"| `{row.kernel}` | {said:.1f} | {measured:.1f} | {row.apart:.1%} |")
    count = len(rows)
    lines += ["", f"Within 5 %: {within(rows, 0.05)} of {count}; 10 %: {within(rows, 0.1)}."]
    return "\n".join(lines)


def _kernels(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "profile.json").read_text("utf-8"))[
        "kernels"
    ]
    return found


if __name__ == "__main__":
    print(table(times(), "µs", 1e6), end="\n\n")
    print(table(moved(), "MB", 1e-6), end="\n\n")
    print(table(moved(reads_alone=True), "MB", 1e-6))
