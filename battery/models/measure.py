"""Runs a command and writes down what it cost: measure.py RESULT.json COMMAND...

CPU seconds are those of the command and all its descendants, also of those that it left behind:
this process adopts them. Memory is the largest sum of proportional set sizes seen, so that memory
that forks share counts once; a GPU's is what its driver says of these processes. A program of its
own, because the kernel counts per parent.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path

_SET_CHILD_SUBREAPER = 36
_TICK = 0.4


def children_by_parent() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                # The name of a program is in parentheses, and may have parentheses itself.
                rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                found.setdefault(int(rest[1]), []).append(int(entry))
    return found


def descendants(pid: int) -> list[int]:
    by_parent = children_by_parent()
    found, left = [], [pid]
    while left:
        below = by_parent.get(left.pop(), [])
        found += below
        left += below
    return found


def memory_of(pid: int) -> int:
    """Bytes: the share of a process in the memory that it maps."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def memory_on_gpus(processes: Collection[int]) -> int:
    """Bytes that these processes hold on all GPUs; 0 where there is none."""
    if not shutil.which("nvidia-smi"):
        return 0
    asked = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    pairs = [line.split(",") for line in told.splitlines() if line.count(",") == 1]
    held = {int(process): int(used) for process, used in pairs if used.strip().isdigit()}
    return sum(used << 20 for process, used in held.items() if process in processes)


def end_all() -> None:
    """End what the command left behind, and take its times over."""
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def main() -> int:
    result, command = Path(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Whoever ends the group of processes reaches the command too: wait for it to clean up.
    signal.signal(signal.SIGTERM, lambda *_: None)
    started, peak, on_gpus = time.monotonic(), 0, 0
    child = subprocess.Popen(command)
    while child.poll() is None:
        running = descendants(os.getpid())
        peak = max(peak, sum(memory_of(pid) for pid in running))
        on_gpus = max(on_gpus, memory_on_gpus(running))
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(_TICK)
    seconds = time.monotonic() - started
    end_all()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Short commands end before they are looked at.
    peak = max(peak, used.ru_maxrss << 10)
    data = {
        "exit_code": child.returncode,
        "seconds": round(seconds, 2),
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 2),
        "peak_bytes": peak,
        "gpu_bytes": on_gpus,
    }
    result.write_text(json.dumps(data))
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


if __name__ == "__main__":
    sys.exit(main())
