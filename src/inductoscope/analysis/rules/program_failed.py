"""An exception that nobody caught.

What it finds: the exception that ended the program, one of its processes or threads; whether it was
raised inside a compiled graph, while something was compiled, or in Python code; and your line.

Why it matters: an exception from compiled code may be the compiler's fault; one from elsewhere is
not.

Example: a custom operator whose fake kernel promises another size than the real one returns.

What to do: if compiled code was involved, 'inductoscope doctor' runs the program in eager as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePath

from inductoscope.analysis.rules.compile_error import INTERRUPTIONS
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, Process, Recording
from inductoscope.model.raising import Raising, where_raised
from inductoscope.model.target import recording_target
from inductoscope.model.uncaught import UncaughtException
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.frames import Frame, shorten
from inductoscope.vocabulary.pretended_device import asked_in_vain, wants_a_value


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per exception; the same one in several processes is one finding.

    The first comes first: what fails in a child, or in one rank, makes others fail later. What ends
    a thread ends no process.
    """
    found: dict[tuple[str, str], list[str]] = {}
    findings: dict[tuple[str, str], Finding] = {}
    every = [(process, error) for process in recording.processes for error in process.uncaught]
    for process, error in sorted(every, key=lambda one: one[1].at):
        if error.type in INTERRUPTIONS or _was_survived(recording, process, error):
            continue
        raising = where_raised(recording, process, error)
        what = _what(error, raising)
        key = what, error.thread
        found.setdefault(key, []).append(_who(recording, process, error))
        findings.setdefault(key, _finding(error, raising, recording_target(recording)))
    for key, names in sorted(found.items(), key=lambda item: bool(item[0][1])):
        who = " and ".join(dict.fromkeys(names))
        finding = findings[key]
        verb = "failed with" if finding.is_problem else "reached a limit of the pretended GPU:"
        yield replace(finding, title=f"{who} {verb} {key[0]}")


def _was_survived(recording: Recording, process: Process, error: UncaughtException) -> bool:
    """Interactive tools print exceptions as Python does, and go on."""
    ended_well = recording.ending is not None and recording.ending.exit_code == 0
    return ended_well and not error.thread and process.pid == recording.command_pid


def _who(recording: Recording, process: Process, error: UncaughtException) -> str:
    if recording.manifest.get("inside"):
        return "The recorded block"
    programs = [one for one in recording.processes if one.role == "program" and one.torch]
    if process.rank and len(programs) > 1:
        name = f"Rank {process.rank}"
    elif process.pid == recording.command_pid or len(programs) == 1:
        name = "The program"
    else:
        name = f"Process {process.pid}"
    if error.thread:
        return f"Thread {error.thread} of {name[0].lower()}{name[1:]}"
    return name


def _what(error: UncaughtException, raising: Raising) -> str:
    """The type of the exception and where it was raised."""
    return f"{error.type} {_where(raising)}".strip()


def _where(raising: Raising) -> str:
    if raising.compile_error is not None and raising.compile is not None:
        compile_ = raising.compile
        return f"while {_named(compile_)} was compiled ({compile_.id})"
    if raising.wrapper is not None:
        return _in_graph(raising)
    if raising.caller is None:
        return ""
    outside = "" if raising.is_compilers else ", outside compiled code"
    return f"at {_short(str(raising.caller))}{outside}"


def _in_graph(raising: Raising) -> str:
    graph = (
        "a compiled graph" if raising.compile is None else f"compiled graph {raising.compile.id}"
    )
    if raising.graph is not None and raising.graph.phase == "backward":
        graph = f"the backward of {graph}"
    if raising.callee is not None:
        callee = raising.callee
        return f"in {callee.function} ({_short(str(callee))}), called by {graph}"
    line = _compiled_line(raising)
    return f"inside {graph}" + (f" ({_short(line)})" if line else "")


def _compiled_line(raising: Raising) -> str:
    if raising.compiled_line:
        return raising.compiled_line
    if raising.compile is not None and raising.compile.place:
        return raising.compile.place
    return str(raising.caller or "")


def _named(compile_: Compile) -> str:
    return compile_.function or "a graph"


def _short(place: str) -> str:
    return PurePath(place).name


def _finding(error: UncaughtException, raising: Raising, target: str) -> Finding:
    message = error.message.strip().partition("\n")[0][:300]
    limit = _limit(error, target) if target else ""
    return Finding(
        rule="program_failed",
        title="",
        is_problem=not limit,
        confidence="proven",
        evidence=(f"{error.type}: {message}" if message else error.type, *_evidence(raising)),
        advice=limit or _advice(raising),
        stage=_stage(raising),
        source=_source(raising),
        compile=raising.compile.id if raising.compile else "",
    )


def _limit(error: UncaughtException, target: str) -> str:
    """What only a real GPU has: the program is not to blame for asking."""
    asked = asked_in_vain(error.message)
    if wants_a_value(error.type, error.message):
        asked = "the value of a tensor"
    if not asked:
        return ""
    return (
        f"This is a limit of --target {target}, not a fault of the program: it asked for {asked}, "
        "which only a real GPU has. Everything compiled before is recorded."
    )


def _evidence(raising: Raising) -> Iterator[str]:
    if raising.wrapper is not None:
        frame = raising.wrapper
        yield f"the traceback goes through generated code: {frame.code[:200]} ({frame})"
        if raising.caller is not None:
            yield f"called from {_frame(raising.caller)}"


def _frame(frame: Frame) -> str:
    return f"{shorten(frame.file)}:{frame.line}" + (f" ({frame.code})" if frame.code else "")


def _stage(raising: Raising) -> str:
    if raising.compile_error is not None:
        return raising.compile_error.stage
    return stages.RUNTIME if raising.wrapper is not None else stages.NO_STAGE


def _source(raising: Raising) -> str:
    if raising.callee is not None:
        return str(raising.callee)
    if raising.wrapper is not None:
        return _compiled_line(raising)
    if raising.compile_error is not None and raising.compile is not None:
        return raising.compile_error.source or raising.compile.place
    return str(raising.caller or "")


def _advice(raising: Raising) -> str:
    if raising.compile_error is not None:
        return "The finding on the failed compile says in which stage, and why."
    if raising.wrapper is not None:
        return "'inductoscope doctor SCRIPT' says whether the program fails in eager, too."
    if raising.is_compilers:
        return "The traceback above ends in torch's compiler."
    return (
        "No compiled code is on the traceback. If you suspect a wrong value that compiled code "
        "made: 'inductoscope doctor SCRIPT' compares with eager."
    )
