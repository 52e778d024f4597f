"""Runs in a child process: runs a kernel's script and says where in Triton it is.

    python bounded.py LIMITS file probe.py SCRIPT FOLDER EVENTS_FD

Run as a file, so that nothing but the standard library and Triton is loaded. One line of JSON
per event goes to EVENTS_FD, before a stage begins and after it has ended, so that the parent knows
the stage even of a process that never answers again. FOLDER receives what each stage made.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TEXTS = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "spv")


class Probe:
    """Writes events, and what the stages made."""

    def __init__(self, folder: Path, events: int) -> None:
        self._folder = folder
        self._events = events

    def say(self, event: str, **more: Any) -> None:
        """Write one event."""
        line = json.dumps({"event": event, "at": time.monotonic(), **more}, default=str)
        os.write(self._events, line.encode() + b"\n")

    def staged(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a stage, with its start and end said."""

        def stage(*args: Any, **kwargs: Any) -> Any:
            self.say("start", stage=name)
            made = function(*args, **kwargs)
            self.say("end", stage=name)
            self._keep(name, made)
            return made

        return stage

    def _keep(self, name: str, made: Any) -> None:
        path = self._folder / f"kernel.{name}"
        if name in _TEXTS:
            path.write_text(str(made), "utf-8", "backslashreplace")
        elif isinstance(made, bytes):
            path.write_bytes(made)


def main() -> None:
    """Run the script that the command line names."""
    script, folder, events = sys.argv[1:4]
    probe = Probe(Path(folder), int(events))
    probe.say("start", stage="import")
    try:
        _watch(probe)
        if not _has_backend(script):
            probe.say("no backend")
            sys.exit(4)
        module = runpy.run_path(script)  # Its functions only: the compile is behind a guard.
        probe.say("end", stage="import")
        probe.say("start", stage="preparation")
        module["compile_alone"]()
        _disassemble(Path(folder))
    except ImportError as error:
        probe.say("missing", kind=type(error).__name__, message=str(error))
        sys.exit(4)
    except BaseException as error:
        probe.say("error", kind=type(error).__name__, message=_message(error))
        sys.exit(1)


def _watch(probe: Probe) -> None:
    """Have every stage of every backend report when it begins and ends."""
    import triton
    from triton.backends import backends
    from triton.compiler import ASTSource

    probe.say("triton", version=triton.__version__)
    for backend in backends.values():
        _watch_stages(probe, backend.compiler)
    ASTSource.make_ir = probe.staged("source", ASTSource.make_ir)
    compile_kernel = triton.compile

    def compile_and_say(*args: Any, **kwargs: Any) -> Any:
        made = compile_kernel(*args, **kwargs)
        about = made.metadata._asdict() if hasattr(made.metadata, "_asdict") else {}
        probe.say("compiled", metadata={k: v for k, v in about.items() if _is_plain(v)})
        return made

    triton.compile = compile_and_say


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _watch_stages(probe: Probe, compiler: Any) -> None:
    original = compiler.add_stages

    def add_stages(self: Any, stages: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        answer = original(self, stages, *args, **kwargs)
        for name, function in list(stages.items()):
            stages[name] = probe.staged(name, function)
        return answer

    compiler.add_stages = add_stages


def _has_backend(script: str) -> bool:
    """Whether this Triton can compile for the script's target."""
    from triton.backends import backends

    kind = Path(script).with_suffix(".target").read_text()
    names = {"cuda": "nvidia", "hip": "amd", "xpu": "intel"}
    return names.get(kind, kind) in backends


def _message(error: BaseException) -> str:
    text = str(error) or repr(error)
    cause = error.__cause__ or error.__context__
    if cause is not None and str(cause) and str(cause) not in text:
        text += f"\n{type(cause).__name__}: {cause}"
    return text[-20_000:]


def _disassemble(folder: Path) -> None:
    """Machine code as text and its use of registers, with the tools that Triton brings along."""
    cubin = folder / "kernel.cubin"
    if not cubin.exists():
        return
    from triton import knobs

    with contextlib.suppress(OSError, RuntimeError, AttributeError, subprocess.SubprocessError):
        tool = knobs.nvidia.cuobjdump.path
        for name, option in (("sass", "-sass"), ("usage", "-res-usage")):
            made = subprocess.run([tool, option, cubin], capture_output=True, timeout=30)
            if made.returncode == 0:
                (folder / f"kernel.{name}").write_bytes(made.stdout)


if __name__ == "__main__":
    main()
