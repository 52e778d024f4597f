"""Measures what a candidate costs to compile, in a fork: by stage, by pass and by node.

Nothing is compared and nothing comes from a cache. The fork says which stages it enters and leaves,
so that something is known even of one that has to be ended.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from inductoscope.capture.scope import SCOPE
from inductoscope.doctor.search.candidate import Candidate
from inductoscope.doctor.search.fork_answer import ForkAnswer
from inductoscope.doctor.search.fork_pipe import PipeWriter
from inductoscope.doctor.search.forks import Forks
from inductoscope.doctor.search.oracle import (
    Around,
    compiled,
    compiling,
    is_past,
    no_further_than,
    run_compiled,
)
from inductoscope.doctor.search.placement import placed
from inductoscope.doctor.search.program_settings import as_when_fresh, settings_with_code
from inductoscope.doctor.search.stack_samples import HotPath, StackSampler, hot_path
from inductoscope.doctor.search.stage_clocks import (
    NativeClocks,
    Spent,
    StageClocks,
    is_calm,
    native_spent,
)
from inductoscope.model.position import OpenStages
from inductoscope.profiling.compile_time.compile_cost import CompileCost, PartCost
from inductoscope.recording.events.base import Event
from inductoscope.recording.events.code import NativeEnd, NativeStart
from inductoscope.recording.events.compiling import StageEnd, StageStart
from inductoscope.recording.events.graphs import NodeLowered, PassesTimed
from inductoscope.recording.events.reading import Entry
from inductoscope.vocabulary import stages
from inductoscope.vocabulary.flows import JUST_IN_TIME

TORCH_NAMES = {
    "torch._inductor.utils": ("fresh_cache",),
}

# Parts that took less of their stage are not worth a line.
_SMALLEST_PART = 0.02
_PLAIN_SHAPE = (64, 64)
# A larger plain graph would take minutes; a line through two sizes has to do beyond it.
MOST_PLAIN = 2000


@dataclass
class _CountingWriter:
    """Passes events on to the parent, and keeps what nodes and passes took."""

    inner: Any
    stopped: str | None = None
    lowered: list[PartCost] = field(default_factory=list)
    passes: list[PartCost] = field(default_factory=list)
    stages: StageClocks = field(default_factory=StageClocks)
    natives: NativeClocks = field(default_factory=NativeClocks)
    _seconds: dict[str, float] = field(default_factory=dict)
    _undelayed: dict[str, float] = field(default_factory=dict)

    def emit(self, event: Event) -> None:
        self._clock(event)
        if isinstance(event, NodeLowered):
            self.lowered.append(PartCost(f"{event.node} {event.target}", event.seconds))
            self._note(lowered=1)
        elif isinstance(event, PassesTimed):
            own = [PartCost(str(each["name"]), float(each["own"])) for each in event.passes]
            self.passes += own
        elif self.inner is not None:
            self.inner.emit(event)

    def _clock(self, event: Event) -> None:
        if isinstance(event, StageStart):
            self.stages.enter()
        elif isinstance(event, StageEnd):
            spent = self.stages.leave(event.seconds)
            if spent is not None:
                _add(self._seconds, event.stage, event.seconds)
                _add(self._undelayed, event.stage, spent.undelayed)
                self._note(stage=event.stage, **asdict(spent))
        elif isinstance(event, NativeStart):
            self.natives.enter(event.source)
        elif isinstance(event, NativeEnd):
            calm = is_calm(self._seconds, self._undelayed)
            spent = self.natives.leave(event.source, event.seconds or 0.0, is_calm=calm)
            self._note(native=event.seconds or 0.0, **asdict(spent))

    def _note(self, **what: Any) -> None:
        if isinstance(self.inner, PipeWriter):
            self.inner.note(**what)

    def payload(self, text: str) -> str:
        return ""

    def close(self) -> None:
        """Nothing to close."""


def _add(seconds: dict[str, float], name: str, more: float) -> None:
    seconds[name] = seconds.get(name, 0.0) + more


@dataclass(frozen=True)
class Measured:
    """What a compile cost, and where its stacks were in the slowest stage."""

    cost: CompileCost
    hot: HotPath = field(default_factory=HotPath)
    error: str = ""

    @property
    def failed(self) -> str:
        """Why it has not been compiled whole; empty if it has."""
        last_line = self.error.strip().rpartition("\n")[2][:300]
        return last_line or (f"ended in {self.cost.ended_in}" if self.cost.ended_in else "")


def measure(
    candidate: Candidate,
    forks: Forks,
    *,
    seconds: float,
    until: str = "",
    stage: str = "",
    around: Around = contextlib.nullcontext,
) -> Measured:
    """Compile a candidate in a fork, for at most `seconds`, and no further than `until` needs.

    Stacks are looked at in one stage, the slowest if none is given.
    """
    answer = forks.ask(measuring(candidate, until, around), seconds=seconds)
    return measured_in(answer, candidate, stage)


def measuring(candidate: Candidate, until: str, around: Around) -> Callable[[], Any]:
    """Work for a fork: compile it, and say what nodes, passes and functions took."""

    def work() -> dict[str, Any]:
        writer = _CountingWriter(SCOPE.writer)
        sampler = StackSampler(threading.get_ident())
        there = placed(candidate)
        with contextlib.ExitStack() as stack:
            stack.enter_context(SCOPE.redirected(writer, timing=True))
            stack.enter_context(compiling(there, in_filled_memory=False))
            for each in (around(), no_further_than(until), _own_cache(), sampler.running()):
                stack.enter_context(each)
            try:
                run_compiled(there, compiled(there))
            except Exception as error:
                if not is_past(error):
                    raise
        return {
            "lowered": _largest(writer.lowered),
            "passes": _largest(writer.passes),
            "samples": [[each.time, *each.stack] for each in sampler.samples],
        }

    return work


@contextlib.contextmanager
def _own_cache() -> Iterator[None]:
    """Binaries must not come from an earlier measurement of the same code."""
    from torch._inductor.utils import fresh_cache

    with fresh_cache():
        yield


def _largest(parts: Sequence[PartCost]) -> list[list[Any]]:
    total = sum(part.seconds for part in parts)
    kept = [part for part in parts if part.seconds >= _SMALLEST_PART * total]
    return [[p.name, p.seconds] for p in sorted(kept, key=lambda part: -part.seconds)[:12]]


def measured_in(answer: ForkAnswer, candidate: Candidate, stage: str = "") -> Measured:
    """What an answer says about the candidate's compile."""
    result = answer.result if isinstance(answer.result, dict) else {}
    spent = _stage_seconds(answer)
    last = answer.last_stage
    ended_in = last.event.stage if answer.timed_out and last is not None else ""
    undelayed, computing = _noted(answer)
    if ended_in:
        _add(spent, ended_in, answer.seconds - answer.entered_at)
        least = _spent_until_ended(answer)
        _add(undelayed, ended_in, least.undelayed)
        _add(computing, ended_in, least.computing)
    ended = [e.seconds or 0.0 for e in answer.events if isinstance(e, NativeEnd)]
    still_open = _open_natives(answer)
    longest = max(still_open, default=0.0)
    if answer.used is not None and longest > max(ended, default=0.0):
        used = answer.used.slowest_child
        native = native_spent(longest, used, 0.0, is_calm=is_calm(spent, undelayed))
        undelayed[stages.CPP_COMPILE] = native.undelayed
        computing[stages.CPP_COMPILE] = native.computing
    cost = CompileCost(
        max(sum("lowered" in note for note in answer.notes), candidate.size),
        spent,
        (*ended, *still_open),
        _parts(result.get("passes")),
        _parts(result.get("lowered")),
        ended_in,
        undelayed,
        computing,
    )
    samples = result.get("samples") or []
    slowest = stage or cost.slowest_stage
    error = answer.error
    if answer.timed_out and not ended_in:
        error = "it was ended outside of every stage"  # So what it took belongs to none.
    return Measured(cost, hot_path(_stacks_in(slowest, samples, answer)), error)


def _stage_seconds(answer: ForkAnswer) -> dict[str, float]:
    found: dict[str, float] = {}
    for event in answer.events:
        if isinstance(event, StageEnd):
            found[event.stage] = found.get(event.stage, 0.0) + event.seconds
    return found


def _noted(answer: ForkAnswer) -> tuple[dict[str, float], dict[str, float]]:
    """By stage: seconds without waiting for a processor, and of computing."""
    undelayed: dict[str, float] = {}
    computing: dict[str, float] = {}
    for note in answer.notes:
        if "stage" in note and note["stage"] not in stages.NATIVE_COMPILES:
            _add(undelayed, note["stage"], note["undelayed"])
            _add(computing, note["stage"], note["computing"])
    natives = [note for note in answer.notes if "native" in note]
    if natives:
        longest = max(natives, key=lambda note: float(note["undelayed"]))
        undelayed[stages.CPP_COMPILE] = longest["undelayed"]
        computing[stages.CPP_COMPILE] = longest["computing"]
    return undelayed, computing


def _spent_until_ended(answer: ForkAnswer) -> Spent:
    """What the stage in which a fork was ended has taken at least.

    As if all waiting for a processor had been there, and all computing before it had been.
    """
    if answer.used is None:
        return Spent(0.0, 0.0)
    inside = answer.seconds - answer.entered_at
    computing = min(max(answer.used.cpu - answer.entered_at, 0.0), inside)
    if answer.used.delayed is None:
        return Spent(computing, computing)
    return Spent(max(inside - answer.used.delayed, 0.0), computing)


def _open_natives(answer: ForkAnswer) -> list[float]:
    """How long native compilers had been running when the fork was ended."""
    if not answer.timed_out:
        return []
    began: dict[str, float] = {}
    for entry in answer.entries:
        if isinstance(entry.event, NativeStart):
            began[entry.event.source] = entry.time
        elif isinstance(entry.event, NativeEnd):
            began.pop(entry.event.source, None)
    return [answer.started + answer.seconds - time for time in began.values()]


def _stacks_in(stage: str, samples: Sequence[list[Any]], answer: ForkAnswer) -> list[list[str]]:
    """The samples that were taken while the stage was the innermost one."""
    entries = _of_compiling_thread(answer)
    inside, found, place = OpenStages(names_threads=True), [], 0
    for time, *stack in samples:
        while place < len(entries) and entries[place].time <= time:
            _follow(inside, entries[place])
            place += 1
        if inside.innermost is not None and inside.innermost.stage == stage:
            found.append(stack)
    return found


def _of_compiling_thread(answer: ForkAnswer) -> list[Entry[Any]]:
    """Stages of the thread that is looked at; native compilers are waited for on others."""
    entries: list[Entry[Any]] = [
        entry for entry in answer.entries if isinstance(entry.event, (StageStart, StageEnd))
    ]
    return [e for e in entries if e.event.thread == entries[0].event.thread]


def _follow(inside: OpenStages, entry: Entry[Any]) -> None:
    if isinstance(entry.event, StageStart):
        inside.enter(entry)
    else:
        inside.leave(entry.event)


def _parts(data: Any) -> tuple[PartCost, ...]:
    return tuple(PartCost(str(name), float(seconds)) for name, seconds in data or ())


def warm_up(like: Candidate) -> None:
    """Compile a few plain nodes in this process, so that no fork has to load the compiler.

    On a thread of its own: on this one, Dynamo is in the middle of a compiled frame. Not where
    there is a GPU: every compile asks it what it is, and this process could not fork any more.
    """
    # To ask whether there is one is enough to spoil it for forks that use the GPU.
    if like.device or torch.cuda.is_available():
        return

    def compile_once() -> None:
        plain = plain_candidate(3, replace(like, backward=False, device="", flow=JUST_IN_TIME))
        with (
            contextlib.suppress(Exception),
            SCOPE.redirected(_CountingWriter(None)),
            compiling(plain, in_filled_memory=False),
            no_further_than(stages.CODEGEN),
        ):
            run_compiled(plain, compiled(plain))

    thread = threading.Thread(target=contextvars.copy_context().run, args=(compile_once,))
    thread.start()
    thread.join()


# --- plain graphs ---------------------------------------------------------------------------------


def plain_candidate(nodes: int, like: Candidate) -> Candidate:
    """A chain of pointwise operations, compiled as the candidate is: what nodes usually cost.

    Without the program's own passes, which may be what is slow.
    """
    graph = Graph()
    value = graph.placeholder("x")
    for number in range(nodes):
        function, more = ((torch.sin, ()), (torch.add, (0.5,)), (torch.mul, (1.01,)))[number % 3]
        value = graph.call_function(function, (value, *more))
    graph.output((value,))
    start = torch.rand(_PLAIN_SHAPE).requires_grad_(like.backward)
    return Candidate(
        GraphModule(torch.nn.Module(), graph),
        (start,),
        backward=like.backward,
        options=like.options,
        config=as_when_fresh(like.config, *settings_with_code()),
        device=like.device,
        dynamic=True if like.dynamic or like.marks else None,
    )


def measure_plain(
    like: Candidate, sizes: Sequence[int], forks: Forks, *, seconds: float
) -> list[Measured]:
    """What plain graphs of these sizes cost, up to the first that cannot be compiled in time."""
    found: list[Measured] = []
    for size in sizes:
        found.append(measure(plain_candidate(size, like), forks, seconds=seconds))
        if found[-1].failed:
            break
    return found


def plain_sizes(nodes: int, *, backward: bool) -> tuple[int, ...]:
    """Sizes of plain graphs that say what so many nodes cost: as many, and few.

    A backward pass adds about as many nodes as there are.
    """
    most = max(12, min(nodes // 2 if backward else nodes, MOST_PLAIN))
    return (3, most) if most > 12 else (most,)
