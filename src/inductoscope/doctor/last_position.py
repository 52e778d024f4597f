"""The position of a program when it died or stalled, from its recording and stacks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from inductoscope.doctor.failure import HANG, SIGNAL, Failure
from inductoscope.doctor.runs import ProgramRun
from inductoscope.hangs.watch.stall import MOST_ROUNDS
from inductoscope.model.entities import Recording
from inductoscope.processes.stacks import StackFrame, parse_dump, threads_in
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts.frames import is_compilers, is_users, shorten
from inductoscope.torch_facts.stages import RUNTIME

# The fewest stacks for naming a common function.
_FEWEST_LOOKS = 4


@dataclass(frozen=True)
class LastPosition:
    """The compile that a program was in, and its end there as a failure."""

    compile: str
    failure: Failure


def last_position(run: ProgramRun) -> LastPosition | None:
    """Return the program's last position; None if outside of the compiler and compiled code."""
    was_ended = run.stalled or run.over_time
    name = signal_name(run.ending.signal) if run.ending.signal and not was_ended else ""
    kind = HANG if was_ended else SIGNAL
    recording = run.recording
    for process in reversed(recording.processes):
        # Only processes that died or hang lack an end in the recording.
        if process.unfinished and process.unfinished[-1].compile and not process.ended:
            last = process.unfinished[-1]
            text = f"the program {_how(run, name)} in stage {last.stage} of compile {last.compile}"
            stacks = run.stacks_of(process.pid)
            functions = compiler_functions(stacks)
            failure = Failure(
                kind,
                text,
                last.stage,
                aspect=name,
                function=_function_of(run, recording, stacks, functions),
                detail=last.detail,
                functions=tuple(functions),
            )
            return LastPosition(last.compile, failure)
    # A process that was ended while the tool judged values has not hung in compiled code.
    calling = (p for p in recording.processes if not (was_ended and p.is_judged))
    called = next((process.call for process in calling if process.call), "")
    if not called:
        return None
    text = f"the program {_how(run, name)} while running the graph of compile {called}"
    return LastPosition(called, Failure(kind, text, RUNTIME, aspect=name))


def last_stacks(run: ProgramRun) -> str:
    """Return the stacks of the first process that wrote any: the program before its children."""
    texts = (run.stacks_of(process.pid) for process in run.recording.processes)
    return next(filter(None, texts), "")


def _how(run: ProgramRun, signal_name: str) -> str:
    if run.stalled or run.over_time:
        return "made no progress" if run.stalled else "did not end in time"
    return f"died of {signal_name}" if signal_name else "lost a process, which died"


def compiler_functions(stacks: str) -> list[str]:
    """Return the compiler's functions on the last written stack, innermost first."""
    last = re.split(r"^Timeout|^Fatal Python error", stacks, flags=re.MULTILINE)[-1]
    # The main thread comes first; others wait for it, or for compilers.
    every = (_functions_on(thread.frames) for thread in parse_dump(last))
    return next(filter(None, every), [])


def _function_of(run: ProgramRun, recording: Recording, stacks: str, functions: list[str]) -> str:
    """Return the function that loops, or in which the program died."""
    if not (run.stalled or run.over_time):
        return functions[0].partition(" ")[0] if functions else ""
    # The recording shows that this function returns repeatedly, so its caller is looping.
    rounds = (round_.round for graph in recording.graphs for round_ in graph.rounds)
    returns = ("fuse_nodes_once",) if max(rounds, default=0) > MOST_ROUNDS else ()
    return looping_function(stacks, returns=returns)


def looping_function(stacks: str, *, returns: tuple[str, ...] = ()) -> str:
    """Return the innermost function that is on every stack of a process.

    Callees of a loop differ between stacks; the loop itself is on all of them. So are functions
    that are called in each iteration and take nearly all the time: `returns` names those. Empty if
    there are too few stacks.
    """
    looks: dict[str, list[Sequence[StackFrame]]] = {}
    for number, thread in threads_in(stacks):
        if _functions_on(thread.frames):
            looks.setdefault(number, []).append(thread.frames[::-1])
    longest = max(looks.values(), key=len, default=[])
    if len(longest) < _FEWEST_LOOKS:
        return ""
    name = ""
    for frames in zip(*longest, strict=False):
        if len({(frame.file, frame.function) for frame in frames}) > 1:
            break
        if frames[0].function in returns:
            break
        if _is_compilers(frames[0].file) or (name and is_users(frames[0].file)):
            name = frames[0].function
    return name


def _is_compilers(path: str) -> bool:
    """Check whether a file is the compiler's; code that waits for workers does not count."""
    return is_compilers(path) and "/compile_worker/" not in path


def _functions_on(frames: Sequence[StackFrame]) -> list[str]:
    found = []
    for frame in frames:
        path = shorten(frame.file)
        in_compiler = _is_compilers(path)
        if in_compiler or is_users(frame.file):
            found.append((in_compiler, f"{frame.function} ({path}:{frame.line})"))
    # Callees of the compiler count, such as a pass of the user; callers do not.
    last = max((n for n, (in_compiler, _) in enumerate(found) if in_compiler), default=-1)
    return [text for _, text in found[: last + 1]][:12]
