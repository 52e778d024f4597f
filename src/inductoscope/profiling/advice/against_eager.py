"""How the compiled calls of a program compare with the same calls in eager.

A program is as slow as its calls are together: of each group of calls that do the same work, the
median in eager and the median compiled are taken as often as the program made such calls, and the
sums are compared. Each block of neighbouring calls gives one such ratio, so that a
difference can be told from noise.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from inductoscope.profiling.advice.alternating import DIFFERENTIATED, IN_EAGER
from inductoscope.profiling.statistics import Sample, TimeComparison, blocks_of, compare
from inductoscope.profiling.timings import FUNCTION, CallTimes, ProcessTimes
from inductoscope.profiling.turns import TimedRun

# Blocks of one run, and the fewest calls of each side that a group must have in it.
_BLOCKS = 10
_FEWEST_CALLS = 3

# The name and the place of a function, and which of its calls.
Key = tuple[str, str, str]


@dataclass(frozen=True)
class PairedCalls:
    """Calls in one run that do the same work, compiled and in eager."""

    key: Key
    compiled: Sample
    eager: Sample
    calls: int

    @property
    def seconds(self) -> float:
        """Seconds that all of them take in eager."""
        return self.eager.median * self.calls

    @property
    def function(self) -> Key:
        """The compiled function, whatever its arguments are."""
        name, place, group = self.key
        return name, place, group.partition(".")[0]


@dataclass(frozen=True)
class AgainstEager:
    """Calls of compiled functions, as a multiple of the same calls in eager."""

    # One value per block of calls, relative to the medians in eager in the same run.
    compiled: Sample
    eager: Sample
    # Seconds in eager of all these calls, had each been made in eager at its median, per run.
    seconds: float
    calls: int
    # The same for each function alone, with its name and place.
    functions: tuple[AgainstEager, ...] = ()
    name: str = ""
    place: str = ""
    # Seconds per run from the first compiled call to the last, without those that compiled.
    span: float = 0.0
    # Whether each call was waited for until a GPU was done, as the program itself may not do.
    waited_for_gpu: bool = False

    @property
    def ratio(self) -> float:
        """How many times as long as in eager."""
        return self.compiled.median

    @property
    def per_call(self) -> float:
        """Seconds of a call in eager, on average."""
        return self.seconds / self.calls if self.calls else 0.0

    @property
    def lost(self) -> float:
        """Seconds per run that are lost against eager; negative if some are won."""
        return (self.ratio - 1) * self.seconds

    @property
    def slowest(self) -> float:
        """How many times as long as in eager the slowest function takes."""
        return max((each.ratio for each in self.functions), default=self.ratio)

    def compared(self) -> TimeComparison:
        """Whether compiled calls are slower than eager, beyond noise."""
        return compare(self.eager, self.compiled)


def against_eager(
    runs: Sequence[TimedRun], only: Collection[Key] | None = None
) -> AgainstEager | None:
    """The calls of these runs against eager, or only some; None if there are none."""
    if any(run.exit_code != 0 or run.not_applied for run in runs):
        return None
    pairs = [[p for p in paired_calls(run) if only is None or p.key in only] for run in runs]
    whole = _together(pairs)
    if whole is None:
        return None
    functions = []
    for key in dict.fromkeys(pair.function for run in pairs for pair in run):
        own = _together([[pair for pair in run if pair.function == key] for run in pairs])
        if own is not None:
            name, place, _ = key
            functions.append(AgainstEager(own.compiled, own.eager, own.seconds, own.calls,
                                          name=name, place=place))  # fmt: skip
    processes = [process for run in runs for process in run.processes]
    return AgainstEager(
        whole.compiled,
        whole.eager,
        whole.seconds,
        whole.calls,
        tuple(functions),
        span=sum(process.span for process in processes) / 1e9 / len(runs),
        waited_for_gpu=any(process.waited_for_gpu for process in processes),
    )


def paired_calls(run: TimedRun) -> list[PairedCalls]:
    """The groups of calls of a run that were made often enough, compiled and in eager."""
    return [pair for process in run.processes for pair in _pairs_of(process)]


def _pairs_of(process: ProcessTimes) -> list[PairedCalls]:
    by_key: dict[tuple[str, Key], CallTimes] = {
        (calls.kind, (calls.name, calls.place, calls.group)): calls for calls in process.calls
    }
    found = []
    for (kind, key), ours in by_key.items():
        theirs = by_key.get((IN_EAGER, key))
        if kind != FUNCTION or theirs is None:
            continue
        pair = PairedCalls(key, ours.seconds, theirs.seconds, ours.count + theirs.count)
        if min(pair.compiled.count, pair.eager.count) >= _FEWEST_CALLS and pair.seconds > 0:
            found.append(pair)
    return found


def is_differentiated(runs: Sequence[TimedRun]) -> bool:
    """Whether there were calls that are not compared because of their backward pass."""
    return any(calls.kind == DIFFERENTIATED for run in runs for calls in run.calls)


def _together(runs: Sequence[Sequence[PairedCalls]]) -> AgainstEager | None:
    made = [pairs for pairs in runs if pairs]
    if not made:
        return None
    compiled: list[float] = []
    eager: list[float] = []
    for pairs in made:
        blocks = min(_BLOCKS, *(min(pair.compiled.count, pair.eager.count) for pair in pairs))
        seconds = sum(pair.seconds for pair in pairs)
        ours = [(blocks_of(pair.compiled.values, blocks), pair.calls) for pair in pairs]
        theirs = [(blocks_of(pair.eager.values, blocks), pair.calls) for pair in pairs]
        for number in range(blocks):
            compiled.append(sum(values[number] * calls for values, calls in ours) / seconds)
            eager.append(sum(values[number] * calls for values, calls in theirs) / seconds)
    return AgainstEager(
        Sample(tuple(compiled)),
        Sample(tuple(eager)),
        sum(pair.seconds for pairs in made for pair in pairs) / len(made),
        sum(pair.calls for pairs in made for pair in pairs) // len(made),
    )
