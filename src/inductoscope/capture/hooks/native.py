"""Native compilers: g++ and its kin for C++ kernels, Triton and ptxas for GPU ones."""

from __future__ import annotations

import shlex
import sys
import time
from typing import Any

from inductoscope.capture.names import Hook, TorchName, Wrap
from inductoscope.capture.observe import (
    Arguments,
    Keywords,
    enter_stage,
    fail_stage,
    leave_stage,
    stage,
    watch,
)
from inductoscope.capture.scope import SCOPE

_SOURCE_SUFFIXES = (".cpp", ".cc", ".cu", ".c", ".h", ".hpp")

# Text forms of a Triton kernel on its way to machine code, as Triton names them.
_READABLE = ("ttir", "ttgir", "llir", "ptx", "amdgcn")


# --- C++ ------------------------------------------------------------------------------------------


def _cpp_start(args: Arguments, kwargs: Keywords) -> Any:
    command = str(args[0] if args else kwargs["cmd_line"])
    words = shlex.split(command)
    source = next((word for word in words if word.endswith(_SOURCE_SUFFIXES)), None)
    fields = {"command": command, "source": source, "output": _output_of(words)}
    SCOPE.emit("native-start", tool="c++", source=source)
    # On a thread of the pool there is no stage to interrupt: the waiting thread keeps the time.
    frame = enter_stage("cpp-compile", detail=source or "") if SCOPE.stages else None
    return fields, time.perf_counter(), frame


def _output_of(words: list[str]) -> str | None:
    return words[words.index("-o") + 1] if "-o" in words[:-1] else None


def _cpp_end(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    leave_stage(token[2])
    _cpp_done(token, exit_code=0)


def _cpp_failed(token: Any, error: BaseException) -> None:
    fail_stage(token[2], error)
    process = error.__cause__
    output = str(getattr(error, "args", [""])[0])
    _cpp_done(
        token,
        exit_code=getattr(process, "returncode", None),
        messages=SCOPE.text(output),
        error=type(error).__name__,
    )


def _cpp_done(token: Any, **outcome: Any) -> None:
    fields, started, _ = token
    SCOPE.emit(
        "native",
        tool="c++",
        seconds=round(time.perf_counter() - started, 6),
        payload=_source_text(fields["source"]),
        **fields,
        **outcome,
    )


def _source_text(path: str | None) -> str | None:
    """The compiled text, which tells the kernel: the file's name is only a hash."""
    if path is None:
        return None
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return SCOPE.text(file.read().strip())
    except OSError:
        return None


CPP = Hook(
    stage="cpp-compile",
    records="runs of the C++ compiler",
    wraps=(
        Wrap(
            TorchName("torch._inductor.cpp_builder", "_run_compile_cmd"),
            watch(before=_cpp_start, after=_cpp_end, failed=_cpp_failed),
        ),
        Wrap(TorchName("torch._inductor.async_compile", "AsyncCompile.wait"), stage("cpp-compile")),
    ),
)


# --- Triton ---------------------------------------------------------------------------------------


def _triton_start(args: Arguments, kwargs: Keywords) -> Any:
    tuner, config = args[0], args[1]
    name = tuner.inductor_meta.get("kernel_name") or getattr(tuner.fn, "__name__", "?")
    _listen()
    SCOPE.emit("native-start", tool="triton", kernel=name, config=str(config))
    return SCOPE.enter("triton-compile", name), name, str(config), time.perf_counter()


def _triton_end(token: Any, result: Any, args: Arguments, kwargs: Keywords) -> None:
    frame, name, config, started = token
    SCOPE.leave(frame)
    kernel = getattr(result, "kernel", None)
    texts = getattr(kernel, "asm", None) or {}
    forms = {
        form: SCOPE.text(texts[form]) for form in _READABLE if isinstance(texts.get(form), str)
    }
    SCOPE.emit(
        "native",
        tool="triton",
        kernel=name,
        config=config,
        seconds=round(time.perf_counter() - started, 6),
        exit_code=0,
        hash=getattr(kernel, "hash", None),
        registers=getattr(kernel, "n_regs", None),
        spills=getattr(kernel, "n_spills", None),
        shared=getattr(getattr(kernel, "metadata", None), "shared", None),
        forms=forms or None,
    )


def _triton_failed(token: Any, error: BaseException) -> None:
    frame, name, config, started = token
    SCOPE.note_failure(error, frame)
    SCOPE.leave(frame)
    SCOPE.emit(
        "native",
        tool="triton",
        kernel=name,
        config=config,
        seconds=round(time.perf_counter() - started, 6),
        error=type(error).__name__,
        messages=SCOPE.text(str(error)),
    )


def _listen() -> None:
    """Hear from Triton itself how long each of its passes took, beside whoever listens already."""
    settings = getattr(sys.modules.get("triton.knobs"), "compilation", None)
    if settings is None or isinstance(settings.listener, _StageListener):
        return
    settings.listener = _StageListener(settings.listener)


class _StageListener:
    """Triton calls it after each compile with the microseconds per pass."""

    def __init__(self, previous: Any) -> None:
        self._previous = previous

    def __call__(self, **report: Any) -> None:
        if self._previous is not None:
            self._previous(**report)
        if SCOPE.active:
            SCOPE.guard(_stages_reported, report)


def _stages_reported(report: dict[str, Any]) -> None:
    metadata, times = report.get("metadata") or {}, report.get("times")
    SCOPE.emit(
        "triton-passes",
        kernel=metadata.get("name"),
        hash=metadata.get("hash"),
        target=str(metadata.get("target")),
        cache_hit=bool(report.get("cache_hit")),
        passes=[[name, micros / 1e6] for name, micros in getattr(times, "lowering_stages", ())],
        files={name: str(path) for name, path in (report.get("metadata_group") or {}).items()},
    )


TRITON = Hook(
    stage="triton-compile",
    records="compiles of Triton kernels",
    wraps=(
        Wrap(
            TorchName(
                "torch._inductor.runtime.triton_heuristics", "CachingAutotuner._precompile_config"
            ),
            watch(before=_triton_start, after=_triton_end, failed=_triton_failed),
        ),
    ),
)
