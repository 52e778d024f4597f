"""The machine's limits, and the least time of work under them.

Bandwidth depends on whether data fits into a cache, so it is measured for several working-set
sizes, and interpolated at the kernel's own. The bytes that a kernel both reads and writes are
compared with a copy, additional reads with pure reading, additional writes with pure writing.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.processes.children import ChildCall, ChildLimits, run_child
from inductoscope.processes.status import own_cores
from inductoscope.recording.codec import decode, encode

# The limits that can bound a kernel.
MEMORY, MATRIX, ARITHMETIC, FUNCTIONS = "memory", "matrix units", "arithmetic", "functions"

# The dtype of float32 products on tensor cores, whose factors are rounded to ten bits of mantissa.
TF32 = "tf32"

# A kernel that beats a measured limit by more than this factor is mentioned.
TOLERANCE = 1.05


@dataclass(frozen=True)
class Bandwidths:
    """Bytes per second for one working-set size; a copy counts both directions."""

    working_set: int
    read: float
    copy: float
    fill: float


@dataclass(frozen=True)
class MachineLimits:
    device: str
    name: str
    threads: int
    torch: str
    bandwidths: tuple[Bandwidths, ...] = ()
    # Operations per second of matrix products, by type; elements per second of functions.
    matrix: Mapping[str, float] = field(default_factory=dict)
    functions: Mapping[str, float] = field(default_factory=dict)
    # The time of the measurement, and the spread of its rounds: 0.1 is ten percent.
    when: str = ""
    spread: float = 0.0

    @property
    def vector(self) -> float:
        """Operations per second of simple arithmetic, bounded by the rate of float32 products."""
        return self.matrix.get("float32", 0.0)

    @property
    def steady_bandwidths(self) -> tuple[Bandwidths, ...]:
        """Bandwidths from the smallest working set to the largest, made monotonic.

        A cache is not slower than the memory behind it; if a measurement says so, that is due to
        the overhead of calls or to other load.
        """
        largest_first = sorted(self.bandwidths, key=lambda item: -item.working_set)
        steady = itertools.accumulate(
            largest_first, lambda larger, item: _blended(item, larger, max)
        )
        return tuple(reversed([*steady]))

    def bandwidth_at(self, working_set: int) -> Bandwidths | None:
        known = self.steady_bandwidths
        for low, high in itertools.pairwise(known):
            if low.working_set < working_set <= high.working_set:
                return _between(low, high, working_set)
        if not known:
            return None
        return known[0] if working_set <= known[0].working_set else known[-1]


def _between(low: Bandwidths, high: Bandwidths, working_set: int) -> Bandwidths:
    share = math.log(working_set / low.working_set) / math.log(high.working_set / low.working_set)
    return _blended(low, high, lambda a, b: a ** (1 - share) * b**share)


def _blended(
    one: Bandwidths, other: Bandwidths, blend: Callable[[float, float], float]
) -> Bandwidths:
    rates = ((one.read, other.read), (one.copy, other.copy), (one.fill, other.fill))
    return Bandwidths(one.working_set, *(blend(*pair) for pair in rates))


@dataclass(frozen=True)
class Floor:
    seconds: float
    limit: str
    # Seconds under each limit alone.
    parts: Mapping[str, float] = field(default_factory=dict)
    working_set: int = 0


def memory_seconds(machine: MachineLimits, read: int, written: int) -> float | None:
    bandwidth = machine.bandwidth_at(read + written)
    if bandwidth is None:
        return None
    both = min(read, written)
    return (
        2 * both / bandwidth.copy
        + (read - both) / bandwidth.read
        + (written - both) / bandwidth.fill
    )


def product_rate(machine: MachineLimits, dtype: str) -> float | None:
    """Return the rate for a dtype; at least that of float32 for lower precision."""
    rate = machine.matrix.get(dtype)
    if dtype in (TF32, "bfloat16", "float16"):
        return max(rate or 0.0, machine.vector) or None
    return rate


# --- measuring ------------------------------------------------------------------------------------

_SECONDS = 180.0
# Part of the cache key; incremented when the measurements change.
_VERSION = 2


def limits_folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "inductoscope" / "machine"


def known_limits(
    device: str,
    threads: int,
    torch: str,
    functions: tuple[str, ...],
    *,
    anew: bool = False,
    say: Callable[[str], None],
) -> tuple[MachineLimits | None, str]:
    """Return the limits of a device with a number of threads, and a note on any failure.

    They are measured in a child process if they are not known yet, or if `anew` is set, and cached
    in the user's cache folder.
    """
    path = limits_folder() / f"{device.replace(':', '-')}-{_key(device, threads, torch)}.json"
    if not anew:
        with contextlib.suppress(OSError, ValueError):
            return decode(MachineLimits, json.loads(path.read_text("utf-8"))), ""
    say(f"measuring what this machine can do ({device}), once")
    try:
        found = _measure(device, threads, functions)
    except ToolFailure as failure:
        return None, str(failure)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(encode(found), indent=1) + "\n", "utf-8")
        unfinished.replace(path)
    except OSError:
        return found, "The limits of the machine cannot be kept: its folder is read-only."
    return found, ""


def _key(device: str, threads: int, torch: str) -> str:
    """Return the cache key: limits depend on processor, threads and version of torch."""
    parts = (_VERSION, device, processor(), os.cpu_count(), sorted(own_cores()), threads, torch)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def processor() -> str:
    with contextlib.suppress(OSError):
        about = Path("/proc/cpuinfo").read_text("utf-8", "replace")
        for name in ("model name", "Hardware", "CPU part", "Model"):
            if found := re.search(rf"^{name}\s*:[ \t]*(\S.*)", about, re.MULTILINE):
                return found[1].strip()
    return ""


def _measure(device: str, threads: int, functions: tuple[str, ...]) -> MachineLimits:
    call = ChildCall(
        "inductoscope.inside.profiling.installation:measure_machine",
        {"device": device, "threads": threads, "functions": functions},
    )
    ended = run_child(call, ChildLimits(_SECONDS, _SECONDS, memory_gib=256.0))
    answer = ended.find("limits")
    if answer is None:
        raise ToolFailure(f"The machine cannot be measured: {ended.problem[:2000]}")
    name, when = answer["name"] or processor(), time.strftime("%Y-%m-%d %H:%M")
    return decode(MachineLimits, {**answer, "device": device, "name": name, "when": when})
