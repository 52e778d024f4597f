"""Measures the machine's limits in a child process, and keeps them in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

from inductoscope.errors import ToolFailure
from inductoscope.processes.cores import own_cores
from inductoscope.processes.limited import ChildLimits, ChildProgram, run_child
from inductoscope.profiling.machine.limits import MachineLimits
from inductoscope.recording.codec import decode, encode

_SECONDS = 180.0
# Measured anew when what is measured changes.
_VERSION = 2


def limits_folder() -> Path:
    """Where the limits of machines are kept."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "inductoscope" / "machine"


def limits_of(
    device: str,
    threads: int,
    torch: str,
    functions: tuple[str, ...],
    *,
    anew: bool = False,
) -> tuple[MachineLimits, Path | None]:
    """The limits of a device with so many threads, and the file that they are kept in.

    They are measured if they are not known yet, or if `anew` asks for it. The file is None if it
    cannot be written: the user's cache folder may be read-only.
    """
    path = limits_folder() / f"{device.replace(':', '-')}-{_key(device, threads, torch)}.json"
    known = None if anew else _read(path)
    if known is not None:
        return known, path
    found = _measure(device, threads, functions)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(f".{os.getpid()}")
        unfinished.write_text(json.dumps(encode(found), indent=1) + "\n", "utf-8")
        unfinished.replace(path)
        return found, path
    return found, None


def is_measured(device: str, threads: int, torch: str) -> bool:
    """Whether the limits are known already."""
    path = limits_folder() / f"{device.replace(':', '-')}-{_key(device, threads, torch)}.json"
    return _read(path) is not None


def _key(device: str, threads: int, torch: str) -> str:
    """Other processors, other numbers of threads and other versions of torch have other limits."""
    parts = (_VERSION, device, processor(), os.cpu_count(), sorted(own_cores()), threads, torch)
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]


def processor() -> str:
    """The processor's name, or what the system says instead."""
    names = ("model name", "Hardware", "CPU part", "Model")
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
        found = {line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in lines}
        return next((found[name] for name in names if found.get(name)), "")
    return ""


def _read(path: Path) -> MachineLimits | None:
    with contextlib.suppress(OSError, ValueError):
        return decode(MachineLimits, json.loads(path.read_text("utf-8")))
    return None


def _measure(device: str, threads: int, functions: tuple[str, ...]) -> MachineLimits:
    program = ChildProgram(
        Path(__file__).with_name("child.py"), (device, str(threads), ",".join(functions))
    )
    limits = ChildLimits(_SECONDS, _SECONDS, memory_gib=256.0)
    with tempfile.TemporaryDirectory(prefix="inductoscope-machine-") as folder:
        ended = run_child(program, limits, Path(folder), lambda event: None)
    for answer in ended.events:
        if answer.get("event") == "limits":
            name = answer.get("name") or processor()
            when = time.strftime("%Y-%m-%d %H:%M")
            return decode(MachineLimits, {**answer, "device": device, "name": name, "when": when})
        if answer.get("event") == "error":
            raise ToolFailure(f"The machine cannot be measured: {answer.get('message')}")
    why = "it took too long" if ended.exit_code is None else ended.output[-300:].strip()
    raise ToolFailure(f"The machine cannot be measured: {why or ended.exit_code}")
