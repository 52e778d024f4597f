"""Native compilers: g++ and others for C++ kernels, Triton and ptxas for GPU kernels."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    enter_stage,
    fail_stage,
    leave_stage,
    stage_done,
    watch,
)
from inductoscope.inside.scope import SCOPE
from inductoscope.launch.environment import RECORDING_VARIABLE, with_scope
from inductoscope.recording.events import NativeEnd, NativeStart
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

_SOURCE_SUFFIXES = (".cpp", ".cc", ".cu", ".c", ".h", ".hpp")

# Textual IR of a Triton kernel's compile stages, by Triton's file extensions.
_READABLE = ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")


# --- C++ ------------------------------------------------------------------------------------------


def _cpp_start(args: Arguments, kwargs: Keywords) -> Any:
    command = str(args[0] if args else kwargs["cmd_line"])
    words = shlex.split(command)
    source = next((word for word in words if word.endswith(_SOURCE_SUFFIXES)), "")
    begun = NativeEnd(tool="c++", command=command, source=source, output=_output_of(words))
    SCOPE.emit(NativeStart(tool="c++", source=source))
    # A pool thread has no enclosing stage to pause; the waiting thread keeps the time.
    frame = enter_stage(stages.CPP_COMPILE, detail=source) if SCOPE.stages else None
    return begun, time.perf_counter(), frame


def _output_of(words: list[str]) -> str:
    return words[words.index("-o") + 1] if "-o" in words[:-1] else ""


def _cpp_end(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    leave_stage(token[2])
    _cpp_done(token, exit_code=0)


def _cpp_failed(token: Any, error: BaseException) -> None:
    fail_stage(token[2], error)
    process = error.__cause__
    output = str(error.args[0]) if error.args else type(error).__name__
    _cpp_done(
        token,
        exit_code=getattr(process, "returncode", None),
        messages=SCOPE.text(output),
        error=type(error).__name__,
    )


def _cpp_done(token: Any, **outcome: Any) -> None:
    begun, started, _ = token
    seconds = round(time.perf_counter() - started, 6)
    SCOPE.emit(replace(begun, seconds=seconds, payload=_source_text(begun.source), **outcome))


def _source_text(path: str) -> str:
    """Store the compiled source, which identifies the kernel; the file's name is only a hash."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return SCOPE.text(file.read().strip())
    except OSError:
        return ""


def _wait_start(args: Arguments, kwargs: Keywords) -> Any:
    """Begin the wrapper's wait for its kernels; the device implies which compiler runs."""
    from torch._inductor.virtualized import V

    devices = getattr(V.graph, "device_types", None) or {"cpu"}
    return enter_stage(stages.CPP_COMPILE if set(devices) <= {"cpu"} else stages.TRITON_COMPILE)


def _wait_failed(frame: Any, error: BaseException) -> None:
    """Correct the stage by the exception, which identifies the compiler better than the device."""
    inner: BaseException | None = error
    while inner is not None:
        if type(inner).__name__ == "CppCompileError":
            frame.stage = stages.CPP_COMPILE
        elif type(inner).__name__ == "SubprocException":
            frame.stage = stages.TRITON_COMPILE
        inner = inner.__cause__ or inner.__context__
    fail_stage(frame, error)


CPP = Hook(
    stage=stages.CPP_COMPILE,
    records="runs of the C++ compiler",
    wraps=(
        Wrap(hooked.RUN_COMPILE_CMD, watch(before=_cpp_start, after=_cpp_end, failed=_cpp_failed)),
        Wrap(hooked.WAIT, watch(before=_wait_start, after=stage_done, failed=_wait_failed)),
    ),
)


# --- Triton ---------------------------------------------------------------------------------------


@dataclass
class _TritonCompile:
    """A compile of one kernel for one configuration, on one thread."""

    # The event to record, as far as it is known.
    known: NativeEnd
    started: float
    frame: Any


class _Current(threading.local):
    """The Triton compile under way on this thread."""

    compile: _TritonCompile | None = None


_current = _Current()


def _triton_start(args: Arguments, kwargs: Keywords) -> _TritonCompile:
    tuner, config = args[0], args[1]
    named = str(tuner.inductor_meta.get("kernel_name") or "")
    # Autotuning choices are compiled before they have names of their own.
    name = (
        named if named and "Placeholder" not in named else str(getattr(tuner.fn, "__name__", "?"))
    )
    _listen()
    frame = enter_stage(stages.TRITON_COMPILE, detail=name) if SCOPE.stages else None
    about: dict[str, Any] = {
        "kernel": name,
        "config": str(config),
        "source": getattr(tuner, "filename", "") or "",
    }
    token = _TritonCompile(NativeEnd(tool="triton", **about), time.perf_counter(), frame)
    SCOPE.emit(NativeStart(tool="triton", **about))
    _current.compile = token
    return token


def _triton_end(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    leave_stage(token.frame)
    kernel = getattr(result, "kernel", None)
    _triton_done(
        token,
        exit_code=0,
        registers=getattr(kernel, "n_regs", None),
        spills=getattr(kernel, "n_spills", None),
        shared=getattr(kernel, "shared", None),
    )


def _triton_failed(token: Any, error: BaseException) -> None:
    fail_stage(token.frame, error)
    _triton_done(token, error=type(error).__name__, messages=SCOPE.text(str(error)))


def _triton_done(token: _TritonCompile, **outcome: Any) -> None:
    _current.compile = None
    said = {name: value for name, value in outcome.items() if value is not None}
    seconds = round(time.perf_counter() - token.started, 6)
    SCOPE.emit(replace(token.known, seconds=seconds, **said))


def _listen() -> None:
    """Install a listener for Triton's stage times, which chains to the previous listener."""
    settings = getattr(sys.modules.get("triton.knobs"), "compilation", None)
    if settings is None or isinstance(settings.listener, _StageListener):
        return
    settings.listener = _StageListener(settings.listener)


class _StageListener:
    """A listener that Triton calls at the end of each compile, on the compiling thread."""

    def __init__(self, previous: Any) -> None:
        self._previous = previous

    def __call__(self, **report: Any) -> None:
        if self._previous is not None:
            self._previous(**report)
        if SCOPE.active:
            SCOPE.guard(_passes_reported, report)


def _passes_reported(report: dict[str, Any]) -> None:
    files = {str(name): str(path) for name, path in (report.get("metadata_group") or {}).items()}
    times, metadata = report.get("times"), report.get("metadata") or {}
    passes = getattr(times, "lowering_stages", ())
    found: dict[str, Any] = {
        "target": str(metadata.get("target")),
        "cache_hit": bool(report.get("cache_hit")),
        "passes": tuple((name, micros / 1e6) for name, micros in passes),
        "forms": _read_forms(files),
        "output": next((p for p in files.values() if p.endswith((".cubin", ".hsaco"))), ""),
        "shared": metadata.get("shared"),
    }
    if _current.compile is not None:
        _current.compile.known = replace(_current.compile.known, **found)
    else:
        # A user-written kernel that Triton compiles outside of Inductor.
        SCOPE.emit(NativeEnd(tool="triton", kernel=metadata.get("name") or "", **found))


def _read_forms(files: dict[str, str]) -> dict[str, str]:
    """Read the textual IR of a kernel's compile stages from the files that Triton keeps."""
    forms: dict[str, str] = {}
    for path in files.values():
        form = path.rpartition(".")[2]
        if form in _READABLE:
            with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
                forms[form] = SCOPE.text(file.read())
    return forms


TRITON = Hook(
    stage=stages.TRITON_COMPILE,
    records="compiles of Triton kernels",
    wraps=(
        Wrap(
            hooked.PRECOMPILE_CONFIG,
            watch(before=_triton_start, after=_triton_end, failed=_triton_failed),
        ),
    ),
)


# --------------------------------------------------------------------------------------------------
# Worker processes: torch compiles Triton kernels, and times choices, in processes of its own.
#
# torch passes them a PYTHONPATH made from `sys.path`, which lacks the scope's start-up hook. The
# hook is added back here, so that each worker writes a stream of its own.


def _with_scope_for_workers(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def environment_for_workers(*args: Any, **kwargs: Any) -> Any:
        found = original(*args, **kwargs)
        # Workers outlive a block of `inductoscope.record()`, so only whole runs record them.
        if SCOPE.active and RECORDING_VARIABLE in os.environ:
            return with_scope(found)
        return found

    return environment_for_workers


WORKERS = Hook(
    stage=stages.TRITON_COMPILE,
    records="what torch's worker processes compile",
    wraps=tuple(Wrap(name, _with_scope_for_workers) for name in hooked.PYTHON_SUBPROCESS_ENV),
)
