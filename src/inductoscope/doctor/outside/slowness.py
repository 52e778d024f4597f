"""Whether compiled code may be slower than it should be: from what the first run recorded anyway.

Nothing is run here. What is suspected is measured by the hypotheses that ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from inductoscope.analysis.rules import SLOWNESS, diagnose
from inductoscope.analysis.rules.finding import Finding
from inductoscope.model.checks import Check
from inductoscope.model.entities import Compile, Recording
from inductoscope.vocabulary.guard_reasons import FailedGuard, read_guard

# A graph that takes so many times as long as in eager, and loses so many seconds per call.
_SUSPICIOUS = 1.25
_LEAST_LOSS = 200e-6
# The first call warms up; of the others there must be so many.
_FEWEST_CALLS = 3

# Rules that say something about the code of a kernel, not about how often it is compiled.
_OF_CODE = tuple(rule for rule in SLOWNESS if rule not in ("recompiles", "graph_breaks"))


def may_be_slower(recording: Recording) -> bool:
    """Whether compiled calls may be slower than eager."""
    called = _steady_calls(recording)
    if any(_is_slower(calls) for calls in called.values()):
        return True
    if not called:
        return False
    findings = diagnose(recording)
    if any(finding.rule in _OF_CODE and finding.compile in called for finding in findings):
        return True
    # Each part of a broken graph has guards and a call from Python of its own.
    broken = {compile_.id for compile_ in recording.compiles if compile_.breaks}
    return bool(broken & set(recording.unchecked))


def _steady_calls(recording: Recording) -> dict[str, list[Check]]:
    """The timed calls of each graph that is called often enough, without the first."""
    found: dict[str, list[Check]] = {}
    for check in recording.checks:
        if check.call > 1 and check.eager > 0 and check.compiled > 0:
            found.setdefault(check.compile, []).append(check)
    return {name: calls for name, calls in found.items() if len(calls) >= _FEWEST_CALLS}


def _is_slower(calls: Sequence[Check]) -> bool:
    eager = median(check.eager for check in calls)
    compiled = median(check.compiled for check in calls)
    return compiled > _SUSPICIOUS * eager and compiled - eager > _LEAST_LOSS


# --- recompiles -----------------------------------------------------------------------------------

# A number that changes on every call was given so many chances.
_FEWEST_VALUES = 5
# Versions of a function that are called more often than this were worth their compile.
_CALLS_THAT_PAY = 2


@dataclass(frozen=True)
class WastedCompiles:
    """A function that is compiled for each value of something that changes in a loop."""

    finding: Finding
    guard: FailedGuard
    compiles: tuple[Compile, ...]
    # torch's own limit, if it was reached.
    limit: str

    @property
    def seconds(self) -> float:
        """What the compiles after the first took."""
        return sum(compile_.seconds for compile_ in self.compiles)


def wasted_compiles(recording: Recording) -> Iterator[WastedCompiles]:
    """Functions whose compiled versions are hardly called before the next one is needed."""
    for finding in diagnose(recording):
        if finding.rule != "recompiles":
            continue
        last = next((c for c in recording.compiles if c.id == finding.compile), None)
        if last is None:
            continue
        same = (last.process, last.function, last.place)
        every = [c for c in recording.compiles if (c.process, c.function, c.place) == same]
        again = tuple(compile_ for compile_ in every if compile_.recompile is not None)
        found = WastedCompiles(finding, _main_guard(again), again, _limit(again))
        if _is_wasted(recording, found, every):
            yield found


def _main_guard(compiles: Sequence[Compile]) -> FailedGuard:
    guards = [read_guard(c.recompile.reasons[0]) for c in compiles if c.recompile]
    names = [guard.about for guard in guards]
    return max(guards, key=lambda guard: names.count(guard.about), default=FailedGuard(""))


def _limit(compiles: Sequence[Compile]) -> str:
    return next((c.recompile.limit for c in compiles if c.recompile and c.recompile.limit), "")


def _is_wasted(recording: Recording, found: WastedCompiles, every: Sequence[Compile]) -> bool:
    if not found.guard.is_about_a_value or not _is_one_loop(found.compiles):
        return False
    if not found.limit and (len(found.compiles) < _FEWEST_VALUES or not found.guard.is_number):
        return False
    names = {compile_.id for compile_ in every}
    if names & set(recording.unchecked):
        return False
    calls = [check.call for check in recording.checks if check.compile in names]
    return bool(calls) and max(calls) <= _CALLS_THAT_PAY


def _is_one_loop(compiles: Sequence[Compile]) -> bool:
    """Whether the same line of the program called it each time."""
    return len({c.recompile.callers for c in compiles if c.recompile}) == 1
