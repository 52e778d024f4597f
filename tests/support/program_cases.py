"""Programs under examination whose runs are written down rather than made.

Each run is a folder with what the program printed, and an exit code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.finding import FailureFinding, finding_in
from inductoscope.doctor.fresh_processes import FreshProcesses
from inductoscope.doctor.instructions import CONDITIONS, FOLDER, MOVED, Instructions
from inductoscope.doctor.proof import Proof
from inductoscope.doctor.runs import Listener, ProgramRun, RunLimits, Runs, output_of
from inductoscope.launch.users_cache import LEFT
from inductoscope.model.entities import Ending
from inductoscope.processes.memory import MemoryUse
from inductoscope.recording.events import CallsUnchecked, Check, CompileStart, Event, ProcessStart
from inductoscope.recording.location import create_recording
from inductoscope.recording.writer import StreamWriter

COMMAND = ("python", "x.py")


@dataclass(frozen=True)
class End:
    """How a run ends."""

    exit_code: int = 0
    output: str = "done"
    over_time: bool = False
    stalled: bool = False
    calls_done: bool = False
    # Its process did not come to say that it ends.
    died: bool = False
    signal: int | None = None
    seconds: float = 1.0
    # Events that it leaves in its recording, and what is found inside it.
    events: tuple[Event, ...] = ()
    found: FailureFinding | None = None
    # Who held how much memory when it was scarcest.
    memory: MemoryUse | None = None


ENDS_WELL = End()
FAILS = End(1, "step 3\nAssertionError: 0.25 is not 0.5")
FAILS_OTHERWISE = End(1, "ConnectionError: the server did not answer")

# What a run is asked for by: what stands in for the backend, the condition that is given back, the
# variable that is set, or one of these.
COMPILED, PLAIN, WARM = "compiled", "plain", "warm"


# A graph that was compiled, and one that was called more often than calls are checked.
COMPILED_ONE = CompileStart(compile="0/0")
UNCHECKED = CallsUnchecked(compile="0/0")


def check(verdict: str = "right", *, is_exact: bool = True, text: str = "2 values") -> Check:
    """A call of a compiled graph that was compared with eager."""
    return Check(compile="0/0", call=1, verdict=verdict, text=text, is_exact=is_exact)


def leave_behind(end: End, folder: Path) -> ProgramRun:
    """The folder of a run that ended so."""
    (folder / FOLDER).mkdir(exist_ok=True)
    output_of(folder).write_text(end.output)
    stream = StreamWriter(folder, first_event=lambda: ProcessStart(pid=1))
    for event in end.events:
        stream.emit(event)
    for claim in end.found.claims if end.found is not None else ():
        stream.emit(claim.as_event())
    if not end.died:
        stream.close()
    ending = Ending(end.exit_code, end.signal, end.seconds)
    was = (end.stalled, end.over_time, end.calls_done)
    return ProgramRun(ending, folder, *was, finding=finding_in(folder), memory=end.memory)


@dataclass
class WrittenRuns:
    """A program whose runs end as written down, by what they are asked for."""

    ends: dict[str, list[End]]
    asked: list[str] = field(default_factory=list)

    def __call__(
        self, command: Any, folder: Path, instructions: Instructions, **how: Any
    ) -> ProgramRun:
        """The next run of this kind; the last one is repeated."""
        kind = instructions.backend or (COMPILED if instructions.inside else PLAIN)
        kind = instructions.given_back[0] if instructions.given_back else kind
        kind = WARM if instructions.cache == LEFT else kind
        named = ", ".join(instructions.variables)
        kind = named if named in self.ends else kind
        self.asked.append(kind)
        ends = self.ends.get(kind, self.ends[COMPILED])
        return leave_behind(ends.pop(0) if len(ends) > 1 else ends[0], folder)


def written_case(place: Path, first: End, **ends: list[End]) -> tuple[ProgramCase, list[str]]:
    """A program that ended so at first, and what its further runs are asked for, in order."""
    usual = {"off": [ENDS_WELL], PLAIN: [FAILS], "eager": [ENDS_WELL], "aot_eager": [ENDS_WELL]}
    given_back = {condition.name: [ENDS_WELL] for condition in CONDITIONS}
    written = WrittenRuns(
        {**usual, **given_back, MOVED: [ENDS_WELL], COMPILED: [ENDS_WELL], WARM: [FAILS], **ends}
    )
    folder = create_recording(COMMAND, output=place / "out")
    runs = Runs(COMMAND, folder, RunLimits(), Listener(_say_nothing), written)
    runs.users_cache, runs.users_caches = place / "no cache", {}
    fresh = FreshProcesses({}, runs.folder, times=1)
    proof = Proof(runs, fresh, Instructions(), _say_nothing)
    run = leave_behind(first, folder)
    return ProgramCase(Instructions(), run, runs, proof, _say_nothing, first.found), written.asked


def _say_nothing(text: str) -> None:
    pass
