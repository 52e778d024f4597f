"""Makes a failure from a comparison, an exception, or the end of a fork."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inductoscope.doctor.failure import ERROR, HANG, LOST_CHECK, NAN, SIGNAL, WRONG, Failure
from inductoscope.inside.compare.bug_or_rounding import EagerComparison, described
from inductoscope.inside.scope import SCOPE
from inductoscope.inside.search.forks import ForkAnswer, PipeWriter
from inductoscope.recording.codec import decode
from inductoscope.recording.events import CompileFailed, NativeEnd, StageEnd
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_own, shorten
from inductoscope.torch_facts.messages import device_error, executed_node, plain_message


def failure_of_comparison(comparison: EagerComparison) -> Failure | None:
    """Return the failure of a comparison with eager; None if the result is right."""
    if comparison.is_right:
        return None
    kind = NAN if comparison.kind == "nan" else WRONG
    first = next(item for item in comparison.wrong if item.kind == comparison.kind)
    if first.lost is not None:
        return Failure(
            LOST_CHECK,
            first.text,
            aspect=first.lost.compiled.partition(":")[0],
            message=first.lost.compiled,
            detail=first.lost.node,
            eager_error=first.lost.eager,
        )
    return Failure(
        kind,
        first.text,
        aspect=comparison.kind,
        where=tuple(item.where for item in comparison.wrong),
        texts=tuple(item.text for item in comparison.wrong[:6]),
        largest=first.largest,
        allowed=first.allowed,
        values=tuple(item.value for item in comparison.wrong[:6] if item.value is not None),
    )


def failure_of_error(error: BaseException) -> Failure:
    inner = innermost(error)
    functions = raising_functions(inner) or raising_functions(error)
    message = _shortened(plain_message(str(inner)))
    on_device = device_error(message)
    if on_device:
        # A device error surfaces in an arbitrary call, as an arbitrary type of exception.
        return Failure(
            ERROR,
            f"CUDA error: {on_device}",
            stage=stages.RUNTIME,
            aspect=on_device,
            message=on_device,
            function=_launched_kernel(error),
            functions=tuple(
                name for one in first_to_last(error) for name in raising_functions(one)
            ),
        )
    return Failure(
        ERROR,
        f"{type(inner).__name__}: {message}",
        aspect=type(inner).__name__,
        function=functions[0].partition(" ")[0] if functions else "",
        message=message,
        functions=_telling(functions),
    )


def first_to_last(error: BaseException) -> list[BaseException]:
    """Return an error's chain of causes, first to last: on a lost device, cleanup fails too."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    return chain[::-1]


def _launched_kernel(error: BaseException) -> str:
    """Return the Triton kernel whose launch raised first; "" if none did."""
    for each in first_to_last(error):
        for frame, _ in traceback.walk_tb(each.__traceback__):
            launcher: Any = frame.f_locals.get("self")
            if type(launcher).__name__ == "CachingAutotuner":
                return str(launcher.inductor_meta.get("kernel_name") or launcher.fn.__name__)
    return ""


def stage_at_run(failure: Failure) -> str:
    """Return the stage of an exception at run time, when a Triton kernel may still be compiled."""
    compiling = any("(triton/compiler/" in name for name in failure.functions)
    return stages.TRITON_COMPILE if compiling else stages.RUNTIME


def _telling(functions: Sequence[str]) -> tuple[str, ...]:
    """Return the innermost functions and Inductor's outer ones: a raising check is not to blame."""
    of_inductor = [name for name in functions[6:] if "(torch/_inductor/" in name]
    return (*functions[:6], *of_inductor[:8])


def _shortened(message: str) -> str:
    """Keep the beginning and the end; the native compiler's long command is in between."""
    return message if len(message) < 2000 else f"{message[:600]}\n…\n{message[-1400:]}"


def innermost(error: BaseException) -> BaseException:
    """Return the exception that was raised first."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = getattr(error, "inner_exception", None) or error.__cause__
        # A native compiler's exit status says less than the exception that holds its message.
        is_status = isinstance(inner, subprocess.CalledProcessError)
        if not isinstance(inner, BaseException) or is_status:
            break
        error = inner
    return error


def raising_functions(error: BaseException) -> list[str]:
    """Return the functions that the exception passed through, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [
        f"{frame.name} ({shorten(frame.filename)}:{frame.lineno})"
        for frame in reversed(frames)
        if not is_own(frame.filename)
    ]


def failure_of_answer(answer: ForkAnswer) -> Failure | None:
    """Return a candidate's failure, from how its fork ended."""
    last = answer.last_stage
    stage, detail = (last.event.stage, last.event.detail) if last else ("", "")
    if answer.timed_out:
        text = f"not finished after {answer.seconds:.0f} s"
        if answer.launches and last is None:
            kernel, at = answer.launches[-1]
            text = f"kernel {kernel} did not return: {text}"
            return Failure(HANG, text, stage=stages.RUNTIME, function=kernel, entered_at=at)
        if not answer.is_stuck and answer.seconds - answer.entered_at < answer.seconds / 2:
            stage = ""  # The fork had only just entered the stage, so it may be slow.
        return Failure(HANG, text, stage=stage, detail=detail, entered_at=answer.entered_at)
    if answer.signal is not None:
        return failure_of_signal(answer)
    data = (answer.result or {}).get("failure")
    if data is None:
        return None
    found = decode(Failure, data)
    return _with_stage(found, answer) if found.kind == ERROR else found


def note_eager_error(error: Exception) -> None:
    """In a fork, tell the parent what eager raises, as compiled code may kill the fork."""
    if isinstance(SCOPE.writer, PipeWriter):
        SCOPE.writer.note(eager_error=described(error), node=executed_node(str(error)))


def failure_of_signal(answer: ForkAnswer) -> Failure:
    """Return the failure of a process that a signal killed, in the compiler or in a kernel."""
    last = answer.last_stage
    stage = last.event.stage if last else stages.RUNTIME
    name = signal_name(answer.signal or 0)
    kernel = answer.launches[-1][0] if answer.launches and stage == stages.RUNTIME else ""
    place = f"kernel {kernel}" if kernel else f"stage {stage}"
    refused = next((note for note in answer.notes if "eager_error" in note), {})
    eager_error = str(refused.get("eager_error") or "")
    instead = f", where eager raises {eager_error}" if eager_error else ""
    return Failure(
        SIGNAL,
        f"the process died of {name} in {place}{instead}",
        stage=stage,
        aspect=name,
        function=kernel,
        detail=str(refused.get("node") or "") if refused else (last.event.detail if last else ""),
        eager_error=eager_error,
    )


def _with_stage(found: Failure, answer: ForkAnswer) -> Failure:
    """Add the stage, which the hooks report in an event."""
    errors = [event for event in answer.events if isinstance(event, CompileFailed)]
    if not errors or device_error(found.text):
        # A kernel may be launched while another one is being compiled.
        return replace(found, stage=stage_at_run(found))
    messages = [
        event.messages
        for event in answer.events
        if isinstance(event, NativeEnd) and event.exit_code
    ]
    return replace(
        found,
        stage=errors[-1].stage,
        detail=errors[-1].detail,
        messages=tuple(messages[-1:]),
        after=_last_ended(answer),
    )


# Stages whose result the next stage uses.
_MAKING = (*stages.PASSES, stages.LOWERING, stages.SCHEDULER)


def _last_ended(answer: ForkAnswer) -> str:
    """Return the last stage that ended: a failure between stages is due to its result."""
    ended = [event.stage for event in answer.events if isinstance(event, StageEnd)]
    return next((stage for stage in reversed(ended) if stage in _MAKING), "")
