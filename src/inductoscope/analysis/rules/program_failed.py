"""An exception that nobody caught, which ended the program.

What it finds: the exception that ended the program, or a process of it that may have made it fail;
whether it was raised inside a compiled graph, while something was compiled, or in Python code; and
your line.

Why it matters: an exception from compiled code may be the compiler's fault; one from elsewhere is
not.

Example: a custom operator whose fake kernel promises another size than the real one returns.

What to do: if compiled code was involved, 'inductoscope doctor' runs the program in eager as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import PurePath

from inductoscope.analysis.rules.compile_error import INTERRUPTIONS
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import (
    Compile,
    Process,
    Recording,
    UncaughtException,
)
from inductoscope.model.process_position import what_runs
from inductoscope.model.raised_exceptions import Raising, where_raised
from inductoscope.model.target import recording_target
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import Frame, shorten
from inductoscope.torch_facts.messages import asked_in_vain, wants_a_value


@dataclass(frozen=True)
class UncaughtFailure:
    """An exception that nobody caught, and the process in which it was raised."""

    process: Process
    error: UncaughtException
    is_programs: bool

    @property
    def ended_part(self) -> bool:
        """Whether it ended a thread, or a process other than the program's own."""
        return bool(self.error.thread) or not self.is_programs


def check(recording: Recording) -> Iterator[Finding]:
    """One finding per exception; what the program survived is for `part_failed`."""
    failures = [one for one in failures_of(recording) if not was_survived(recording, one)]
    return findings_of(recording, failures, rule="program_failed")


def failures_of(recording: Recording) -> list[UncaughtFailure]:
    """All of them, the first first: what fails in one rank makes others fail later."""
    every = [
        UncaughtFailure(process, error, _is_programs(recording, process))
        for process in recording.processes
        for error in process.uncaught
        if error.type not in INTERRUPTIONS
    ]
    return sorted(every, key=lambda failure: failure.error.at)


def _is_programs(recording: Recording, process: Process) -> bool:
    return bool(recording.manifest.get("inside")) or process.pid == recording.command_pid


def was_survived(recording: Recording, failure: UncaughtFailure) -> bool:
    """Whether the program went on.

    What ends a child may be why a program exits with a code, but rarely why a signal kills it. What
    ends a thread ends no process. Interactive tools print exceptions as Python does, and go on.
    """
    if failure.error.thread:
        return True
    ending = recording.ending
    if ending is None:
        return False
    return ending.exit_code == 0 or (failure.ended_part and ending.signal is not None)


def findings_of(
    recording: Recording, failures: list[UncaughtFailure], rule: str
) -> Iterator[Finding]:
    """One finding per exception; the same one in several processes is one finding."""
    found: dict[tuple[str, str], list[str]] = {}
    findings: dict[tuple[str, str], Finding] = {}
    for failure in failures:
        error = failure.error
        raising = where_raised(recording, failure.process, error)
        key = _what(error, raising), error.thread
        found.setdefault(key, []).append(_who(recording, failure))
        finding = _finding(error, raising, recording_target(recording))
        findings.setdefault(key, replace(finding, rule=rule))
    for key, names in found.items():
        who = " and ".join(dict.fromkeys(names))
        finding = findings[key]
        verb = "failed with" if finding.is_problem else "reached a limit of the pretended GPU:"
        yield replace(finding, title=f"{who} {verb} {key[0]}")


def _who(recording: Recording, failure: UncaughtFailure) -> str:
    if recording.manifest.get("inside"):
        return "The recorded block"
    process = failure.process
    programs = [one for one in recording.processes if one.role == "program" and one.torch]
    if process.rank and len(programs) > 1:
        name = f"Rank {process.rank}"
    elif failure.is_programs:
        name = "The program"
    else:
        runs = what_runs(process.argv)
        name = f"Process {process.pid}" + (f" ({runs})" if runs else "")
    if failure.error.thread:
        return f"Thread {failure.error.thread} of {name[0].lower()}{name[1:]}"
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
        rule="",
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
