"""Makes a failure from a comparison, an exception, or the end of a fork."""

from __future__ import annotations

import subprocess
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inductoscope.doctor.failure import (
    ERROR,
    HANG,
    NAN,
    SIGNAL,
    WRONG,
    Failure,
    device_error,
)
from inductoscope.inside.compare.bug_or_rounding import EagerComparison
from inductoscope.inside.search.forks import ForkAnswer
from inductoscope.recording.codec import decode
from inductoscope.recording.events import (
    CompileFailed,
    KernelLaunched,
    NativeEnd,
    StageEnd,
)
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import is_own, shorten
from inductoscope.torch_facts.messages import plain_message


def failure_of_comparison(comparison: EagerComparison) -> Failure | None:
    """A wrong result as a failure."""
    if comparison.is_right:
        return None
    kind = NAN if comparison.kind == "nan" else WRONG
    first = next(item for item in comparison.wrong if item.kind == comparison.kind)
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
    """An exception of the compiler as a failure."""
    inner = innermost(error)
    functions = raising_functions(inner) or raising_functions(error)
    message = _shortened(plain_message(str(inner)))
    on_device = device_error(message)
    if on_device:
        # Whichever call happens to notice it, and whatever type of exception that one raises.
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
    """The error and those that led to it: on a lost device, cleaning up fails too."""
    chain: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in chain:
        chain.append(at)
        at = at.__cause__ or at.__context__
    return chain[::-1]


def _launched_kernel(error: BaseException) -> str:
    """The Triton kernel whose launch raised first; "" if it was no Triton kernel's."""
    for each in first_to_last(error):
        for frame, _ in traceback.walk_tb(each.__traceback__):
            launcher: Any = frame.f_locals.get("self")
            if type(launcher).__name__ == "CachingAutotuner":
                return str(launcher.inductor_meta.get("kernel_name") or launcher.fn.__name__)
    return ""


def stage_at_run(failure: Failure) -> str:
    """The stage of an exception while a graph ran: a kernel may be compiled only then."""
    compiling = any("(triton/compiler/" in name for name in failure.functions)
    return stages.TRITON_COMPILE if compiling else stages.RUNTIME


def _telling(functions: Sequence[str]) -> tuple[str, ...]:
    """The innermost functions and Inductor's further out: a check that raises is not to blame."""
    of_inductor = [name for name in functions[6:] if "(torch/_inductor/" in name]
    return (*functions[:6], *of_inductor[:8])


def _shortened(message: str) -> str:
    """The beginning and the end; the long command of a native compiler is in between."""
    return message if len(message) < 2000 else f"{message[:600]}\n…\n{message[-1400:]}"


def innermost(error: BaseException) -> BaseException:
    """The exception that was raised first."""
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
    """Functions that the exception passed through, innermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [
        f"{frame.name} ({shorten(frame.filename)}:{frame.lineno})"
        for frame in reversed(frames)
        if not is_own(frame.filename)
    ]


def failure_of_answer(answer: ForkAnswer) -> Failure | None:
    """The failure of a candidate, from how its fork ended."""
    last = answer.last_stage
    stage, detail = (last.event.stage, last.event.detail) if last else ("", "")
    if answer.timed_out:
        kernel = _running_kernel(answer)
        text = f"not finished after {answer.seconds:.0f} s"
        if kernel:
            text = f"kernel {kernel} did not return: {text}"
            at = answer.launched_at
            return Failure(HANG, text, stage=stages.RUNTIME, function=kernel, entered_at=at)
        if not answer.is_stuck and answer.seconds - answer.entered_at < answer.seconds / 2:
            stage = ""  # It had only just entered it, so it may be slow and not hang.
        return Failure(HANG, text, stage=stage, detail=detail, entered_at=answer.entered_at)
    if answer.signal is not None:
        return failure_of_signal(answer)
    data = (answer.result or {}).get("failure")
    if data is None:
        return None
    found = decode(Failure, data)
    return _with_stage(found, answer) if found.kind == ERROR else found


def _running_kernel(answer: ForkAnswer) -> str:
    """The kernel that was launched last, if nothing is being compiled."""
    launches = [event for event in answer.events if isinstance(event, KernelLaunched)]
    return launches[-1].kernel if launches and answer.last_stage is None else ""


def failure_of_signal(answer: ForkAnswer) -> Failure:
    """A process that was killed by a signal: in the compiler, or in a kernel."""
    launches = [event for event in answer.events if isinstance(event, KernelLaunched)]
    last = answer.last_stage
    stage = last.event.stage if last else stages.RUNTIME
    name = signal_name(answer.signal or 0)
    kernel = launches[-1].kernel if launches and stage == stages.RUNTIME else ""
    place = f"kernel {kernel}" if kernel else f"stage {stage}"
    return Failure(
        SIGNAL,
        f"the process died of {name} in {place}",
        stage=stage,
        aspect=name,
        function=kernel,
        detail=last.event.detail if last else "",
    )


def _with_stage(found: Failure, answer: ForkAnswer) -> Failure:
    """Add the stage, which the hooks report as an event."""
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


# Stages whose result the next one uses.
_MAKING = (*stages.PASSES, stages.LOWERING, stages.SCHEDULER)


def _last_ended(answer: ForkAnswer) -> str:
    """The last stage that ended: what fails between stages fails because of its result."""
    ended = [event.stage for event in answer.events if isinstance(event, StageEnd)]
    return next((stage for stage in reversed(ended) if stage in _MAKING), "")
