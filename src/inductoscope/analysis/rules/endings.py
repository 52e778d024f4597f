"""Rules about how a program ended: exceptions, signals, stalls, exit codes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

from inductoscope.analysis.rules.dynamo import short_reason
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Compile, CompileError, Process, Recording, UncaughtException
from inductoscope.model.operation_trace import operations_of, source_of_node
from inductoscope.model.process_position import what_runs
from inductoscope.model.raised_exceptions import Raising, where_raised
from inductoscope.model.stored_recordings import running_streams
from inductoscope.model.target import recording_target
from inductoscope.recording import values
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import shorten
from inductoscope.torch_facts.messages import asked_in_vain, wants_a_value
from inductoscope.verdicts import Confidence
from inductoscope.wording import count_of

# Raised to stop the program, not by the compiler.
INTERRUPTIONS = ("KeyboardInterrupt", "SystemExit")


def was_interrupted(compile_: Compile) -> bool:
    """Check whether the program was interrupted, most often with Ctrl-C."""
    return any(error.type in INTERRUPTIONS for error in compile_.errors)


# --- exceptions that nobody caught ----------------------------------------------------------------


@dataclass(frozen=True)
class UncaughtFailure:
    process: Process
    error: UncaughtException
    is_programs: bool

    @property
    def ended_part(self) -> bool:
        """Whether the exception ended a thread or a process other than the program's own."""
        return bool(self.error.thread) or not self.is_programs


def program_failed(recording: Recording) -> Iterator[Finding]:
    """An exception that nobody caught, which ended the program.

    What it finds: the exception that ended the program, or a process of it that may have made it
    fail; whether it was raised inside a compiled graph, while something was compiled, or in Python
    code; and your line.

    Why it matters: an exception from compiled code may be the compiler's fault; one from elsewhere
    is not.

    Example: a custom operator whose fake kernel promises another size than the real one returns.

    What to do: if compiled code was involved, 'inductoscope doctor' runs the program in eager as
    well.
    """
    failures = [one for one in _failures_of(recording) if not _was_survived(recording, one)]
    return _findings_on(recording, failures)


def part_failed(recording: Recording) -> Iterator[Finding]:
    """An exception in a thread or a child process, which the program survived.

    What it finds: an exception that nobody caught and that ended a thread, or a child process of a
    program that ended well or was killed by a signal; and your line.

    Why it matters: the program goes on without what the thread or the child was for.

    Example: a loader thread that cannot read a file; the program ends well, with data missing.

    What to do: catch the exception there, or make the program fail with it.
    """
    # An interactive tool has already shown exceptions of the program's main thread.
    survived = [one for one in _failures_of(recording) if _was_survived(recording, one)]
    return _findings_on(recording, [failure for failure in survived if failure.ended_part])


def _failures_of(recording: Recording) -> list[UncaughtFailure]:
    """Return uncaught exceptions, earliest first: a failing rank makes others fail later."""
    inside = bool(recording.manifest.get("inside"))
    every = [
        UncaughtFailure(process, error, inside or process.pid == recording.command_pid)
        for process in recording.processes
        for error in process.uncaught
        if error.type not in INTERRUPTIONS
    ]
    return sorted(every, key=lambda failure: failure.error.at)


def _was_survived(recording: Recording, failure: UncaughtFailure) -> bool:
    """Check whether the program continued after an exception.

    An exception that ends a child may cause the program's exit code, but rarely the signal that
    kills it. An exception in a thread ends no process. Interactive tools print exceptions and
    continue.
    """
    if failure.error.thread:
        return True
    ending = recording.ending
    if ending is None:
        return False
    return ending.exit_code == 0 or (failure.ended_part and ending.signal is not None)


def _findings_on(recording: Recording, failures: list[UncaughtFailure]) -> Iterator[Finding]:
    """Return one finding per exception, even if several processes raised it."""
    names: dict[tuple[str, str], list[str]] = {}
    findings: dict[tuple[str, str], Finding] = {}
    for failure in failures:
        error = failure.error
        raising = where_raised(recording, failure.process, error)
        origin = _origin(raising)
        key = f"{error.type} {origin.where}".strip(), error.thread
        names.setdefault(key, []).append(_failed_part(recording, failure))
        if key not in findings:
            target = recording_target(recording)
            findings[key] = _on_exception(error, raising, origin, target)
    for key, finding in findings.items():
        who = " and ".join(dict.fromkeys(names[key]))
        verb = "failed with" if finding.is_problem else "reached a limit of the pretended GPU:"
        yield replace(finding, title=f"{who} {verb} {key[0]}")


def _failed_part(recording: Recording, failure: UncaughtFailure) -> str:
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


@dataclass(frozen=True)
class _Origin:
    """Where an exception was raised, in words; the line to look at, and what to do."""

    where: str
    stage: str
    source: str
    advice: str


def _origin(raising: Raising) -> _Origin:
    compile_, caller = raising.compile, str(raising.caller or "")
    if raising.compile_error is not None and compile_ is not None:
        return _Origin(
            f"while {compile_.function or 'a graph'} was compiled ({compile_.id})",
            raising.compile_error.stage,
            raising.compile_error.source or compile_.place,
            "The finding on the failed compile says in which stage, and why.",
        )
    if raising.wrapper is not None:
        source = raising.compiled_line or (compile_.place if compile_ else "") or caller
        return _Origin(
            _in_graph(raising, source),
            stages.RUNTIME,
            str(raising.callee or source),
            "'inductoscope doctor SCRIPT' says whether the program fails in eager, too.",
        )
    outside, advice = "", "The traceback above ends in torch's compiler."
    if not raising.is_compilers:
        outside = ", outside compiled code"
        advice = (
            "No compiled code is on the traceback. If you suspect a wrong value that compiled code "
            "made: 'inductoscope doctor SCRIPT' compares with eager."
        )
    where = f"at {PurePath(caller).name}{outside}" if caller else ""
    return _Origin(where, stages.NO_STAGE, caller, advice)


def _in_graph(raising: Raising, source: str) -> str:
    graph = (
        "a compiled graph" if raising.compile is None else f"compiled graph {raising.compile.id}"
    )
    if raising.graph is not None and raising.graph.phase == "backward":
        graph = f"the backward of {graph}"
    if raising.callee is not None:
        callee = raising.callee
        return f"in {callee.function} ({PurePath(str(callee)).name}), called by {graph}"
    return f"inside {graph}" + (f" ({PurePath(source).name})" if source else "")


def _on_exception(
    error: UncaughtException, raising: Raising, origin: _Origin, target: str
) -> Finding:
    message = error.message.strip().partition("\n")[0][:300]
    limit = _limit_of_target(error, target) if target else ""
    through: tuple[str, ...] = ()
    if raising.wrapper is not None:
        frame, caller = raising.wrapper, raising.caller
        through = (f"the traceback goes through generated code: {frame.code[:200]} ({frame})",)
        if caller is not None:
            code = f" ({caller.code})" if caller.code else ""
            through += (f"called from {shorten(caller.file)}:{caller.line}{code}",)
    return Finding(
        title="",
        is_problem=not limit,
        evidence=(f"{error.type}: {message}" if message else error.type, *through),
        advice=limit or origin.advice,
        stage=origin.stage,
    ).at(raising.compile.id if raising.compile else "", origin.source)


def _limit_of_target(error: UncaughtException, target: str) -> str:
    """Return advice on what only a real GPU has: asking for it is no fault of the program."""
    asked = asked_in_vain(error.message)
    if wants_a_value(error.type, error.message):
        asked = "the value of a tensor"
    if not asked:
        return ""
    return (
        f"This is a limit of --target {target}, not a fault of the program: it asked for {asked}, "
        "which only a real GPU has. Everything compiled before is recorded."
    )


# --- exceptions of the compiler -------------------------------------------------------------------


def compile_error(recording: Recording) -> Iterator[Finding]:
    """A compile that raised an exception.

    What it finds: exceptions that left the compiler, with the stage that raised them and, if known,
    the node, pass or file it was working on. An exception that Dynamo swallowed, so that the frame
    ran in eager, is not an error; the rule on graph breaks reports those. What is raised only
    because the GPU of `--target` is not there is a note.

    Why it matters: the program stops, or runs uncompiled if errors are suppressed.

    Example: a lowering that fails on one operation, a kernel that g++ rejects.

    What to do: read the innermost cause; look at the stage with `inductoscope show --stage`.
    """
    for compile_ in recording.compiles:
        for error in compile_.errors:
            if not error.swallowed:
                yield _on_compile_error(recording, compile_, error)


def _on_compile_error(recording: Recording, compile_: Compile, error: CompileError) -> Finding:
    operations = operations_of(recording, compile_, error.graph, error.detail)
    inside = f" ({', '.join(operations[:8])})" if operations else ""
    at = f", at {error.detail}{inside}" if error.detail else ""
    name = f"The compile of {compile_.function or 'a frame'}"
    left = f"{error.type} left the compiler during compile {compile_.id}"
    if error.type in INTERRUPTIONS:
        return Finding(
            title=f"{name} was interrupted in stage {error.stage}{at}",
            evidence=(left,),
            advice="If you interrupted it because it made no progress, this is where it was.",
            stage=error.stage,
        ).at(compile_.id, compile_.place)
    target = recording_target(recording)
    asked = asked_in_vain("\n".join((error.message, *error.cause))) if target else ""
    if asked:
        return Finding(
            title=f"{name} ended early: torch asked for {asked}, which only a real GPU has. This "
            f"is a limit of --target {target}, not a fault of the program",
            evidence=(
                f"{left}, in stage {error.stage}",
                *(f"raised in {place}" for place in error.raised_in[:1]),
            ),
            advice="What was compiled before is recorded. Choose another mode of torch.compile to "
            "get further, or run on the GPU itself.",
            stage=error.stage,
        ).at(compile_.id, compile_.place)
    complaint = _compiler_complaint(recording, error) or _innermost(error)
    node = (operations or [error.detail])[-1]
    return Finding(
        title=f"{name} failed in stage {error.stage}{at}: {complaint[:400]}",
        is_problem=True,
        evidence=(
            left,
            *(f"raised in {place}" for place in error.raised_in[:1]),
            *(f"called from {place}" for place in error.raised_in[1:3]),
        ),
        advice=_advice_on_compile(error),
        stage=error.stage,
    ).at(
        compile_.id,
        error.source or source_of_node(recording, compile_, error.graph, node) or compile_.place,
    )


def _innermost(error: CompileError) -> str:
    text = error.cause[-1] if error.cause else f"{error.type}: {short_reason(error.message)}"
    return text.strip().splitlines()[0] if text.strip() else error.type


def _compiler_complaint(recording: Recording, error: CompileError) -> str:
    """Return the native compiler's message if that compiler failed."""
    if error.stage not in (stages.CPP_COMPILE, stages.WRAPPER, stages.TRITON_COMPILE):
        return ""
    failed = [native for native in recording.natives if native.exit_code or native.error]
    if not failed:
        return ""
    # The last message counts: torch first probes the compiler, and some probes may fail.
    native = failed[-1]
    lines = recording.payload(native.messages).splitlines()
    complaint = next((line for line in lines if "error:" in line.lower()), native.error)
    return f"{native.tool} compiler: {complaint.strip()}" if complaint.strip() else ""


def _advice_on_compile(error: CompileError) -> str:
    view = stages.SHOWN_AS.get(error.stage)
    if error.stage == stages.DYNAMO:
        otherwise = " Without fullgraph=True it would break the graph here and continue."
        refused = "Dynamo failed before Inductor received a graph."
        return refused + (otherwise if "Internal" not in error.type else "")
    traceback = "See the traceback with 'inductoscope show --stage errors'"
    if view is None:
        return f"{traceback}."
    return f"{traceback} and the state of the stage with 'inductoscope show --stage {view}'."


# --- signals --------------------------------------------------------------------------------------

_REQUESTED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE}
# Signals that nothing but a timer or a limit sends, and what is known about who set it.
_TIMER = "a timer that the program or its launcher set (signal.alarm, setitimer) ran out"
_TIMERS = {
    **dict.fromkeys((signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF), _TIMER),
    signal.SIGXCPU: "the program used up the CPU time that it may use (ulimit -t)",
}
# Signals of hardware faults and of C code: a wrong kernel can be the cause.
_FAULTS = {
    getattr(signal, f"SIG{name}") for name in ("SEGV", "BUS", "FPE", "ILL", "ABRT", "TRAP", "SYS")
}


def crash(recording: Recording) -> Iterator[Finding]:
    """A program killed by a signal.

    What it finds: a command killed by a signal such as SIGSEGV, and the stage of the compiler that
    the process was in, if any. An interrupt or a request to stop is a note, not a problem.

    Why it matters: no exception is raised and nothing is printed; only the recording is left.

    Example: a generated kernel that reads outside its buffer.

    What to do: if it died inside a stage, look at that stage; if after compiling, suspect a kernel.
    """
    ending = recording.ending
    if ending is not None and ending.by_tool:
        return  # The doctor ended it, and its verdict says why.
    # A process that stopped recording may have run on for long: its last stage means nothing.
    victims = [
        process
        for process in recording.processes
        if process.role == "program" and process.unfinished
        if not process.ended and not process.stopped
    ]
    if ending is not None and ending.signal is not None:
        yield _killed(recording, ending.signal, victims)
        return
    running = running_streams(Path(recording.path)) if victims and ending is None else frozenset()
    for process in victims:
        if running is None:
            yield _lost_sight_of(process)
        elif process.stream in running:
            yield _still_running(process)
        else:
            yield _vanished(process)


def _killed(recording: Recording, number: int, victims: list[Process]) -> Finding:
    name = signal_name(number)
    last = victims[-1].unfinished[-1] if victims else None
    where = _unfinished_stage(victims[-1]) if victims else ""
    compiled = sum(1 for graph in recording.graphs if graph.finished)
    verb = "stopped" if number in _REQUESTED or number in _TIMERS else "killed"
    return Finding(
        title=f"The program was {verb} by {name}, {where or _elsewhere(recording, compiled)}",
        is_problem=number not in _REQUESTED,
        evidence=(
            f"the exit status of the command says {name}",
            *([_TIMERS[signal.Signals(number)]] if number in _TIMERS else []),
            *_last_steps(recording),
        ),
        advice=_advice_on_signal(number, bool(where), bool(compiled)),
        stage=last.stage if last else stages.RUNTIME,
        compile=last.compile if last else "",
    )


def _elsewhere(recording: Recording, compiled: int) -> str:
    """Describe where a program was when it was outside all stages."""
    if any(process.stopped for process in recording.processes):
        return "but it is not known where: the recording had stopped before"
    if any(was_interrupted(compile_) for compile_ in recording.compiles):
        return "while it compiled"
    if compiled:
        return f"outside the compiler, after {count_of(compiled, 'compiled graph')}"
    return "outside the compiler"


def _last_steps(recording: Recording) -> Iterator[str]:
    """Describe how far an unfinished graph got."""
    for graph in recording.graphs:
        last = None if graph.finished or graph.kernels else next(reversed(graph.lowered), None)
        if last is not None:
            yield f"the last node of graph {graph.key} to be lowered was {last.node}"
    for native in recording.natives:
        if native.seconds is None:
            yield f"{native.tool} was still compiling {native.kernel or native.source}"


def _unfinished_stage(process: Process) -> str:
    last = process.unfinished[-1]
    detail = f" ({last.detail})" if last.detail else ""
    return f"in stage {last.stage}{detail} of compile {last.compile}"


def _vanished(process: Process) -> Finding:
    """Report a rank that died inside the compiler, or the program together with the tool."""
    last, where = process.unfinished[-1], _unfinished_stage(process)
    rank = f"rank {process.rank}" if process.rank else f"process {process.pid}"
    return Finding(
        title=f"{rank} vanished {where}",
        is_problem=True,
        confidence="likely",
        evidence=("its stream ends inside the stage, with no exception and no normal exit",),
        advice="It was killed, or it called os._exit. Look at the stage it was in.",
        stage=last.stage,
        compile=last.compile,
    )


def _still_running(process: Process) -> Finding:
    last, where = process.unfinished[-1], _unfinished_stage(process)
    return Finding(
        title=f"The program is still running: process {process.pid} is {where}",
        evidence=("the process is alive, and has not left the stage",),
        advice=f"'inductoscope attach {process.pid}' shows what it is doing.",
        stage=last.stage,
        compile=last.compile,
    )


def _lost_sight_of(process: Process) -> Finding:
    """Report a process without an end, on another machine."""
    last, where = process.unfinished[-1], _unfinished_stage(process)
    return Finding(
        title=f"The recording has no end: process {process.pid} was last {where}",
        confidence="unknown",
        evidence=("its stream ends inside the stage; the exit of the command is not recorded",),
        advice="The program is still running, or it was killed together with inductoscope.",
        stage=last.stage,
        compile=last.compile,
    )


def _advice_on_signal(number: int, in_compiler: bool, compiled: bool) -> str:
    if number in _REQUESTED:
        return "Someone or something asked the program to stop."
    if number in _TIMERS:
        return "It is a time limit, not a crash. Find out what took so long, or raise the limit."
    if number == signal.SIGKILL:
        return "If nobody sent it, the machine ran out of memory: see the kernel's log (dmesg)."
    if number not in _FAULTS:
        return "Another process sent it, or the program sent it to itself."
    if in_compiler:
        return "The compiler itself died. Look at the stage with 'inductoscope show'."
    if compiled:
        return (
            "A compiled kernel may be the cause: 'inductoscope doctor' runs the program again and "
            "finds out."
        )
    return "Nothing had been compiled, so look outside torch.compile first."


# --- stalls and exit codes ------------------------------------------------------------------------


def stall(recording: Recording) -> Iterator[Finding]:
    """A program that stopped making progress.

    What it finds: each time nothing happened for longer than the stage should take, with the kind
    of stall, what was stuck and, for autotuning choices, what separates the stuck ones from the
    others.

    Why it matters: by default torch waits forever and prints nothing.

    Example: ptxas that never finishes on one configuration of a matrix product.

    What to do: the advice depends on the kind; 'inductoscope doctor' proves it and tries
    workarounds.
    """
    folder = Path(recording.path)
    if not any(folder.glob("stall-*.json")):
        return
    # Most runs do not stall, and importing the watcher takes longer than all other rules.
    from inductoscope.hangs.watch.live import kept_stalls

    interrupted = {c.id for c in recording.compiles if was_interrupted(c)}
    for kept in kept_stalls(folder):
        # Ctrl-C makes a program move, but resolves nothing.
        is_cut = str(kept.get("compile")) in interrupted
        moved = {} if is_cut else values.members(kept.get("moved"))
        yield _stalled(kept, moved, folder)


_CONFIDENCES: dict[str, Confidence] = {"proven": "proven", "likely": "likely"}


def _stalled(kept: dict[str, Any], moved: dict[str, Any], folder: Path) -> Finding:
    """Report a stall; one that resolved by itself is a note."""
    from inductoscope.hangs.choices.analysis import analyse
    from inductoscope.hangs.choices.stuck_choices import stuck_choices

    judgement, ended = values.members(kept.get("judgement")), values.members(kept.get("ended"))
    seconds = values.real(moved.get("after") if moved else kept.get("seconds"))
    or_more = "" if moved else " or more"
    # Choices are compiled and awaited inside of several stages.
    choices = stuck_choices(folder) if not judgement.get("moves") else None
    return Finding(
        title=f"No progress for {seconds:.0f} s{or_more}: {judgement.get('title')}",
        is_problem=not moved and not judgement.get("moves"),
        confidence=_CONFIDENCES.get(str(judgement.get("confidence")), "unknown"),
        evidence=(
            *values.texts(judgement.get("evidence")),
            *(analyse(choices).lines if choices is not None else []),
            *([f"--kill-stuck ended pid {ended['pids']}"] if ended.get("pids") else []),
        ),
        advice=str(judgement.get("advice") or ""),
        stage=str(kept.get("stage") or stages.NO_STAGE),
    ).at(str(kept.get("compile") or ""), str(kept.get("source") or kept.get("function") or ""))


def exit_code(recording: Recording) -> Iterator[Finding]:
    """A program that ended with an exit code other than 0.

    What it finds: a program that says that it failed, and raised no exception that nobody caught.

    Why it matters: nothing else in the recording says why.

    Example: `sys.exit(3)`; a launcher that catches exceptions, prints them and exits with 1.

    What to do: read what the program printed.
    """
    ending = recording.ending
    if ending is None or not ending.exit_code or ending.signal is not None or ending.by_tool:
        return
    if any(not error.thread for process in recording.processes for error in process.uncaught):
        return
    if any(not error.swallowed for c in recording.compiles for error in c.errors):
        return
    recorded = [process for process in recording.processes if process.torch]
    yield Finding(
        title=f"The program ended with exit code {ending.exit_code}"
        + ("; no uncaught exception is recorded" if recorded else ""),
        evidence=(
            "the exit status of the command",
            *(
                f"process {p.pid} did not end as Python does: os._exit, or C code"
                for p in recorded
                if not p.ended and p.pid == recording.command_pid
            ),
        ),
        advice="Read what the program printed: it chose this exit code itself."
        if recorded
        else "It ended before it imported torch, so only what it printed says why.",
    )
