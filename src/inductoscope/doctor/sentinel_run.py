"""Runs a program for long under the sentinel, and has an alarm examined afterwards."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from signal import SIGINT, SIGTERM

from inductoscope import verdicts as v
from inductoscope.doctor.alarm import Alarm, read_alarms
from inductoscope.doctor.common_verdicts import verdict_on_alarm
from inductoscope.doctor.examination import Doctor, Request
from inductoscope.doctor.instructions import FOLDER, STOPPED
from inductoscope.doctor.runs import FollowedRun, Listener
from inductoscope.doctor.sentinel_options import SentinelOptions
from inductoscope.doctor.verdict import Verdict
from inductoscope.launch.program import run_recorded
from inductoscope.model.entities import Ending
from inductoscope.recording.events import BiasFound, CallShadowed, ShadowsEnded
from inductoscope.recording.reader import open_recording
from inductoscope.torch_facts import stages
from inductoscope.wording import count_of

Say = Callable[[str], None]

_TICK = 0.5

# The fewest shadowed calls of one graph before an alarm is possible.
_FEWEST_TO_TELL = 30


@dataclass(frozen=True)
class Shadows:
    """Calls that the sentinel shadowed in all processes of a run."""

    # By compile: the shadowed calls of the graph, as stream and number.
    shadowed: dict[str, set[tuple[str, int]]]
    # By compile: why shadowing of a graph stopped.
    ended: dict[str, str]
    # The texts of all alarms.
    alarms: list[str]
    # Seconds of shadowing up to the last shadowed call, and of the program itself.
    spent: float = 0.0
    seen: float = 0.0


def read_shadows(folder: Path) -> Shadows:
    shadowed: dict[str, set[tuple[str, int]]] = {}
    ended: dict[str, str] = {}
    alarms: list[str] = []
    times: dict[str, tuple[float, float]] = {}
    for entry in open_recording(folder).entries():
        event = entry.event
        if isinstance(event, CallShadowed):
            shadowed.setdefault(event.compile, set()).add((entry.stream, event.call))
            times[entry.stream] = event.spent, event.seen
        elif isinstance(event, ShadowsEnded):
            ended[event.compile] = event.text
        elif isinstance(event, BiasFound):
            alarms.append(event.text)
    return Shadows(
        shadowed,
        ended,
        alarms,
        sum(spent for spent, _ in times.values()),
        sum(seen for _, seen in times.values()),
    )


class LongRun:
    """A run of the program to its end, then the examination of the call behind an alarm."""

    def __init__(self, request: Request, options: SentinelOptions, say: Say) -> None:
        self._request, self._options, self._say = request, options, say
        self._started = time.monotonic()
        self._doctor: Doctor | None = None
        self._ending: Ending | None = None

    def run(self) -> None:
        """Run the program unchanged, with its own output, input, caches and threads."""
        (self._request.folder / FOLDER).mkdir(exist_ok=True)
        self._ending = run_recorded(
            self._request.command,
            self._request.folder,
            observer=self._passing_on,
            variables=self._options.environment(),
        )

    @contextlib.contextmanager
    def _passing_on(self, pid: int) -> Iterator[None]:
        """Pass on messages of the sentinel immediately."""
        followed = FollowedRun(self._request.folder, Listener(self._say))
        over = threading.Event()

        def pass_on() -> None:
            while not over.wait(_TICK):
                followed.look()

        thread = threading.Thread(target=pass_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            followed.look()

    def examine(self) -> Verdict:
        """Return the verdict on the run, examining the call that raised the first alarm."""
        alarms = read_alarms(self._request.folder / FOLDER)
        shadows = read_shadows(self._request.folder)
        if not alarms:
            return self._finished(self._without_alarm(shadows), shadows)
        kept, alarm = alarms[0]
        self._doctor = Doctor(replace(self._request, kept=kept), self._say)
        verdict = self._doctor.examine()
        for _, other in alarms[1:]:
            verdict.add(other.text, "another alarm of the sentinel")
        return self._finished(verdict, shadows, alarm)

    def interrupted(self) -> Verdict:
        verdict = Verdict(v.UNKNOWN, stages.NO_STAGE, "Interrupted before anything was found.")
        if self._doctor is not None:
            verdict = self._doctor.interrupted()
        else:
            for kept, alarm in read_alarms(self._request.folder / FOLDER)[:1]:
                verdict = verdict_on_alarm(alarm, kept)
        verdict.partial = True
        return self._finished(verdict, read_shadows(self._request.folder))

    def _without_alarm(self, shadows: Shadows) -> Verdict:
        """Return the verdict if no alarm has stored a call to examine."""
        for text in shadows.alarms[:1]:
            summary = f"{v.headline(v.WRONG_RESULT)}, slightly and always in the same direction: "
            verdict = Verdict(v.WRONG_RESULT, stages.NO_STAGE, summary + text, "likely")
            why = "the call could not be kept, perhaps for lack of space"
            return verdict.add(why, "the sentinel")
        code = self._ending.exit_code if self._ending else 0
        ended = "was interrupted" if self._is_interrupted else "ended well"
        counts = [len(calls) for calls in shadows.shadowed.values()]
        count, graphs = sum(counts), len(counts)
        if code and not self._is_interrupted:
            return Verdict(
                v.UNKNOWN,
                stages.NO_STAGE,
                f"The program ended with exit code {code}, and the sentinel raised no alarm. "
                "'inductoscope doctor' without --sentinel finds out why it fails.",
            )
        if max(counts, default=0) < _FEWEST_TO_TELL:
            text = (
                f"The program {ended}, but too few of its compiled calls were shadowed to tell: "
                f"{count}, and an alarm takes about {_FEWEST_TO_TELL} of one graph. A longer run, "
                "or a larger --overhead, gives more."
            )
            return Verdict(v.NOT_CHECKED, stages.NO_STAGE, text, "proven")
        return Verdict(
            v.CLEAN,
            stages.NO_STAGE,
            f"No bias found: {count} calls of {count_of(graphs, 'compiled graph')} were shadowed, "
            "and no error points the same way beyond what rounding does.",
            "likely",
        )

    @property
    def _is_interrupted(self) -> bool:
        """Whether the user ended the program with a signal, as is common for long training."""
        return self._ending is not None and self._ending.signal in (SIGINT, SIGTERM)

    def _finished(self, verdict: Verdict, shadows: Shadows, alarm: Alarm | None = None) -> Verdict:
        if alarm is not None:
            verdict.add(f"{alarm.text}; {alarm.bound}", "the sentinel, in the whole run")
        for compile_, calls in list(shadows.shadowed.items())[:8]:
            last = max(number for _, number in calls)
            text = f"{count_of(len(calls), 'call')} shadowed, the last of them call {last}"
            verdict.add(text, f"graph {compile_}")
        for compile_, text in list(shadows.ended.items())[:8]:
            verdict.add(f"not shadowed: {text}", f"graph {compile_}")
        if shadows.seen:
            text = f"shadowing had taken {shadows.spent:.2f} s at the last shadowed call, and the "
            text += f"program {shadows.seen:.2f} s for itself"
            verdict.add(text, "the sentinel's own clock")
        if self._ending is not None and self._ending.exit_code not in (0, STOPPED):
            verdict.add(f"the program ended with exit code {self._ending.exit_code}")
        verdict.recording = str(self._request.folder)
        verdict.seconds = round(time.monotonic() - self._started, 1)
        verdict.runs += 1
        return self._request.store_verdict(verdict)
