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
from dataclasses import replace
from typing import Any

from inductoscope.inside.observe import (
    Arguments,
    Keywords,
    Watching,
    enter_stage,
    fail_stage,
    leave_stage,
    watch,
)
from inductoscope.inside.scope import SCOPE, chain_of
from inductoscope.launch.environment import RECORDING_VARIABLE, with_scope
from inductoscope.recording.events import NativeEnd, NativeStart
from inductoscope.torch_facts import private_names as hooked
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.torch_names import Hook, Wrap

_SOURCE_SUFFIXES = (".cpp", ".cc", ".cu", ".c", ".h", ".hpp")

# Textual IR of a Triton kernel's compile stages, by Triton's file extensions.
_READABLE = ("ttir", "ttgir", "llir", "ptx", "sass", "amdgcn")


# --- C++ ------------------------------------------------------------------------------------------


def _run_compiler(args: Arguments, kwargs: Keywords) -> Watching:
    command = str(args[0] if args else kwargs["cmd_line"])
    words = shlex.split(command)
    source = next((word for word in words if word.endswith(_SOURCE_SUFFIXES)), "")
    begun = NativeEnd(tool="c++", command=command, source=source, output=_output_of(words))
    SCOPE.emit(NativeStart(tool="c++", source=source))
    # A pool thread has no enclosing stage to pause; the waiting thread keeps the time.
    frame = enter_stage(stages.CPP_COMPILE, detail=source) if SCOPE.stages else None
    started = time.perf_counter()

    def done(**outcome: Any) -> None:
        seconds = round(time.perf_counter() - started, 6)
        SCOPE.emit(replace(begun, seconds=seconds, payload=_source_text(source), **outcome))

    try:
        yield
    except BaseException as error:
        fail_stage(frame, error)
        output = str(error.args[0]) if error.args else type(error).__name__
        done(
            exit_code=getattr(error.__cause__, "returncode", None),
            messages=SCOPE.text(output),
            error=type(error).__name__,
        )
        raise
    leave_stage(frame)
    done(exit_code=0)


def _output_of(words: list[str]) -> str:
    return words[words.index("-o") + 1] if "-o" in words[:-1] else ""


def _source_text(path: str) -> str:
    """Store the compiled source, which identifies the kernel; the file's name is only a hash."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return SCOPE.text(file.read().strip())
    except OSError:
        return ""


def _wait(args: Arguments, kwargs: Keywords) -> Watching:
    """Mark the wrapper's wait for its kernels; the device implies which compiler runs."""
    from torch._inductor.virtualized import V

    devices = getattr(V.graph, "device_types", None) or {"cpu"}
    frame = enter_stage(stages.CPP_COMPILE if set(devices) <= {"cpu"} else stages.TRITON_COMPILE)
    try:
        yield
    except BaseException as error:
        # The exception identifies the compiler better than the device.
        for inner in chain_of(error):
            frame.stage = _COMPILER_ERRORS.get(type(inner).__name__, frame.stage)
        fail_stage(frame, error)
        raise
    leave_stage(frame)


_COMPILER_ERRORS = {
    "CppCompileError": stages.CPP_COMPILE,
    "SubprocException": stages.TRITON_COMPILE,
}


# --- Triton ---------------------------------------------------------------------------------------


class _Current(threading.local):
    """The Triton compile under way on this thread: the event to record, as far as it is known."""

    compile: NativeEnd | None = None


_current = _Current()


def _compile_config(args: Arguments, kwargs: Keywords) -> Watching:
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
    started = time.perf_counter()
    SCOPE.emit(NativeStart(tool="triton", **about))
    _current.compile = NativeEnd(tool="triton", **about)
    try:
        result = yield
    except BaseException as error:
        fail_stage(frame, error)
        _triton_done(started, error=type(error).__name__, messages=SCOPE.text(str(error)))
        raise
    leave_stage(frame)
    kernel = getattr(result, "kernel", None)
    _triton_done(
        started,
        exit_code=0,
        registers=getattr(kernel, "n_regs", None),
        spills=getattr(kernel, "n_spills", None),
        shared=getattr(kernel, "shared", None),
    )


def _triton_done(started: float, **outcome: Any) -> None:
    known, _current.compile = _current.compile, None
    said = {name: value for name, value in outcome.items() if value is not None}
    if known is not None:
        SCOPE.emit(replace(known, seconds=round(time.perf_counter() - started, 6), **said))


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
        _current.compile = replace(_current.compile, **found)
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


HOOKS = (
    Hook(
        stage=stages.CPP_COMPILE,
        records="runs of the C++ compiler",
        wraps=(
            Wrap(hooked.RUN_COMPILE_CMD, watch(_run_compiler)),
            Wrap(hooked.WAIT, watch(_wait)),
        ),
    ),
    Hook(
        stage=stages.TRITON_COMPILE,
        records="compiles of Triton kernels",
        wraps=(Wrap(hooked.PRECOMPILE_CONFIG, watch(_compile_config)),),
    ),
    Hook(
        stage=stages.TRITON_COMPILE,
        records="what torch's worker processes compile",
        wraps=tuple(Wrap(name, _with_scope_for_workers) for name in hooked.PYTHON_SUBPROCESS_ENV),
    ),
)
