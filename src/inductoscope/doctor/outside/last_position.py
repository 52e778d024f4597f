"""Where a program was when it died or stopped moving, from what it left behind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from inductoscope.doctor.outside.program import Watched, open_stages
from inductoscope.processes.dumps import StackFrame, parse_dump, threads_in
from inductoscope.recording.layout import STREAMS
from inductoscope.recording.reader import Event, open_recording
from inductoscope.recording.signals import signal_name
from inductoscope.vocabulary.frames import is_compilers, is_users, shorten
from inductoscope.vocabulary.stages import RUNTIME

# Stacks from which on what is on all of them says something.
_FEWEST_LOOKS = 4
# Rounds of fusion that torch makes at most, with some to spare.
_MOST_ROUNDS = 20


@dataclass(frozen=True)
class Whereabouts:
    """The compile that a process was in, the stage, and the functions on its stack."""

    compile: str
    stage: str
    text: str
    detail: str = ""
    signal_name: str = ""
    function: str = ""
    functions: list[str] = field(default_factory=list)


def last_compile(run: Watched) -> Whereabouts | None:
    """Where the program was last; None if it was not in compiled code or in the compiler."""
    functions = compiler_functions(run.stacks)
    was_ended = run.stalled or run.over_time
    name = signal_name(run.ending.signal) if run.ending.signal and not was_ended else ""
    for stream in sorted((run.folder / STREAMS).glob("*.jsonl"), reverse=True):
        if _has_ended(stream):
            continue
        stages = open_stages(stream)
        if stages and stages[-1].get("compile"):
            last = stages[-1]
            stage = str(last.get("stage"))
            how = _how(run, name)
            return Whereabouts(
                str(last["compile"]),
                stage,
                f"the program {how} in stage {stage} of compile {last['compile']}",
                str(last.get("detail") or ""),
                name,
                _function_of(run, functions),
                functions,
            )
    return _in_a_call(run, name, functions)


def _has_ended(stream: Path) -> bool:
    """Whether the process has said that it ends; one that died or hangs has not."""
    with contextlib.suppress(OSError):
        return b'"kind":"process-end"' in stream.read_bytes()[-4096:]
    return True


def _in_a_call(run: Watched, name: str, functions: list[str]) -> Whereabouts | None:
    """A process that entered a compiled graph and neither left it nor ended."""
    entered: dict[str, str] = {}
    for event in open_recording(run.folder).events():
        if event.kind == "graph-call":
            entered[event.stream] = event.text("compile")
        elif event.kind in ("graph-returned", "process-end"):
            entered.pop(event.stream, None)
    if not entered:
        return None
    last = next(iter(entered.values()))
    text = f"the program {_how(run, name)} while running the graph of compile {last}"
    return Whereabouts(last, RUNTIME, text, "", name, "", functions)


def _how(run: Watched, signal_name: str) -> str:
    if run.stalled or run.over_time:
        return "has not moved" if run.stalled else "did not end in time"
    return f"died of {signal_name}" if signal_name else "lost a process, which died"


def compiler_functions(stacks: str) -> list[str]:
    """The compiler's functions on the last stack that was written, innermost first."""
    last = re.split(r"^Timeout|^Fatal Python error", stacks, flags=re.MULTILINE)[-1]
    # The main thread is the first; others wait for it, or for compilers.
    every = (_functions_on(thread.frames) for thread in parse_dump(last))
    return next(filter(None, every), [])


def _function_of(run: Watched, functions: list[str]) -> str:
    """The function to name: what goes round and round, or what it was in when it died."""
    if run.stalled or run.over_time:
        return looping_function(run.stacks, returns=_functions_that_return(run))
    return functions[0].partition(" ")[0] if functions else ""


def _functions_that_return(run: Watched) -> tuple[str, ...]:
    """Functions that were seen to end over and over: whoever calls them is the one that loops."""
    rounds = (e.whole("round") for e in open_recording(run.folder).events() if _is_round(e))
    return ("fuse_nodes_once",) if max(rounds, default=0) > _MOST_ROUNDS else ()


def _is_round(event: Event) -> bool:
    return event.kind == "fusion-round"


def looping_function(stacks: str, *, returns: tuple[str, ...] = ()) -> str:
    """The innermost function that is on every stack that a process was asked for.

    What a loop calls comes and goes from one look to the next; the loop stays. So do functions that
    are called anew each time, where nearly all time is spent in them: `returns` names those. Empty
    where there were too few looks to tell.
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
        if is_compilers(frames[0].file) or (name and is_users(frames[0].file)):
            name = frames[0].function
    return name


def _functions_on(frames: Sequence[StackFrame]) -> list[str]:
    found = []
    for frame in frames:
        path = shorten(frame.file)
        in_compiler = is_compilers(path)
        if in_compiler or is_users(frame.file):
            found.append((in_compiler, f"{frame.function} ({path}:{frame.line})"))
    # What the compiler called, such as the user's own pass, counts; what called it does not.
    last = max((n for n, (in_compiler, _) in enumerate(found) if in_compiler), default=-1)
    return [text for _, text in found[: last + 1]][:12]
