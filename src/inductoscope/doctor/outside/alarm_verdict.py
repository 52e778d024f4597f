"""What an alarm of the sentinel says by itself, before or without its proof."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from inductoscope.doctor.alarm import Alarm
from inductoscope.doctor.failure import WRONG, Failure
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.vocabulary import stages
from inductoscope.vocabulary import verdicts as v


def verdict_on_alarm(alarm: Alarm, kept: Path) -> Verdict:
    """A compiled graph is biased; where in the compiler that comes from is not known."""
    result = Verdict(
        v.WRONG_RESULT,
        stages.NO_STAGE,
        f"{v.headline(v.WRONG_RESULT)}, slightly and always in the same direction: {alarm.text}",
        "likely",
        Culprit(source=alarm.sources[-1] if alarm.sources else None),
    )
    result.add(alarm.bound, f"compile {alarm.compile}, tested after every shadowed call")
    command = f"inductoscope doctor --kept {quote(str(kept))} SCRIPT [ARGS]"
    result.add(f"to prove it, run: {command}", "the call is kept")
    return result


def failure_of_alarm(alarm: Alarm) -> Failure:
    """The failure to look for in the call that was kept."""
    return Failure(WRONG, alarm.text, aspect="value", where=(alarm.value,), largest=abs(alarm.bias))
