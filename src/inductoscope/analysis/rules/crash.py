"""A program killed by a signal.

What it finds: a command killed by a signal such as SIGSEGV, and the stage of the compiler that the
process was in, if any. An interrupt or a request to stop is a note, not a problem.

Why it matters: no exception is raised and nothing is printed; only the recording is left.

Example: a generated kernel that reads outside its buffer.

What to do: if it died inside a stage, look at that stage; if after compiling, suspect a kernel.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

from inductoscope.analysis.rules.compile_error import was_interrupted
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.entities import Process, Recording
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

_REQUESTED = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE}
# Signals that nothing but a timer or a limit sends, and what is known about who set it.
_TIMERS = {
    signal.SIGALRM: "a timer that the program or its launcher set (signal.alarm, setitimer) ran "
    "out, and nothing handled it",
    signal.SIGVTALRM: "a timer of CPU time that the program set (setitimer) ran out",
    signal.SIGPROF: "a timer of CPU time that the program or a profiler set (setitimer) ran out",
    signal.SIGXCPU: "the program used up the CPU time that it may use (ulimit -t)",
}
# What a processor or C code does to a program: a wrong kernel can be the cause.
_FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}


def check(recording: Recording) -> Iterator[Finding]:
    """A finding for the command itself, and one for every rank that died inside the compiler."""
    if recording.ending is not None and recording.ending.by_tool:
        return  # The doctor ended it, and its verdict says why.
    number = recording.ending.signal if recording.ending else None
    victims = [process for process in recording.processes if _died_compiling(process)]
    if number is not None:
        yield _ending(recording, number, victims)
        return
    for process in victims:
        yield _last_seen(process) if recording.ending is None else _lost_process(process)


def _died_compiling(process: Process) -> bool:
    # A process that stopped recording may have run on for long: its last stage means nothing.
    silent = not process.ended and not process.stopped
    return process.role == "program" and silent and bool(process.unfinished)


def _ending(recording: Recording, number: int, victims: list[Process]) -> Finding:
    name = signal_name(number)
    where = _where(victims[-1]) if victims else ""
    requested = number in _REQUESTED
    compiled = sum(1 for graph in recording.graphs if graph.finished)
    place = where or _elsewhere(recording, compiled)
    return Finding(
        rule="crash",
        title=f"The program was {_verb(number)} by {name}, {place}",
        is_problem=not requested,
        confidence="proven",
        evidence=(
            f"the exit status of the command says {name}",
            *([_TIMERS[signal.Signals(number)]] if number in _TIMERS else []),
            *_last_steps(recording),
        ),
        advice=_advice(number, bool(where), bool(compiled)),
        stage=victims[-1].unfinished[-1].stage if victims else stages.RUNTIME,
        compile=victims[-1].unfinished[-1].compile if victims else "",
    )


def _verb(number: int) -> str:
    return "stopped" if number in _REQUESTED or number in _TIMERS else "killed"


def _elsewhere(recording: Recording, compiled: int) -> str:
    """Where a program was that was not inside a stage."""
    if any(process.stopped for process in recording.processes):
        return "but it is not known where: the recording had stopped before"
    if any(was_interrupted(compile_) for compile_ in recording.compiles):
        return "while it compiled"
    if compiled:
        return f"outside the compiler, after {count_of(compiled, 'compiled graph')}"
    return "outside the compiler"


def _last_steps(recording: Recording) -> Iterator[str]:
    """How far an unfinished graph got."""
    for graph in recording.graphs:
        last = None if graph.finished or graph.kernels else next(reversed(graph.lowered), None)
        if last is not None:
            yield f"the last node of graph {graph.key} to be lowered was {last.node}"
    for native in recording.natives:
        if native.seconds is None:
            yield f"{native.tool} was still compiling {native.kernel or native.source}"


def _where(process: Process) -> str:
    last = process.unfinished[-1]
    detail = f" ({last.detail})" if last.detail else ""
    return f"in stage {last.stage}{detail} of compile {last.compile}"


def _lost_process(process: Process) -> Finding:
    rank = f"rank {process.rank}" if process.rank else f"process {process.pid}"
    return Finding(
        rule="crash",
        title=f"{rank} vanished {_where(process)}",
        is_problem=True,
        confidence="likely",
        evidence=("its stream ends inside the stage, with no exception and no normal exit",),
        advice="It was killed, or it called os._exit. Look at the stage it was in.",
        stage=process.unfinished[-1].stage,
        compile=process.unfinished[-1].compile,
    )


def _last_seen(process: Process) -> Finding:
    """The recording has no end, so the process may still be alive."""
    return Finding(
        rule="crash",
        title=f"The recording has no end: process {process.pid} was last {_where(process)}",
        is_problem=False,
        confidence="unknown",
        evidence=("its stream ends inside the stage; the exit of the command is not recorded",),
        advice="The program is still running, or it was killed together with inductoscope.",
        stage=process.unfinished[-1].stage,
        compile=process.unfinished[-1].compile,
    )


def _advice(number: int, in_compiler: bool, compiled: bool) -> str:
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
