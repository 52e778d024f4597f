"""The program has asked for errors where there is NaN (`nan_asserts`), and there is.

When it applies: The last call that was checked raised the error of torch's own check, an input of
it or its result in eager holds NaN or infinity, and this very error ended the program.

What it runs: Nothing.

What it concludes: Not a bug: which input holds it, and where.

How sure: Proven, because the values were looked at; likely if it was not seen that these are the
values that were refused.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.finding_verdict import relative_place
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.recording.events import NAN_LIKELY, NAN_REFUSED
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import refused_variable


def _applies(case: ProgramCase) -> bool:
    if not case.fails_unexplained or case.first.ending.signal is not None:
        return False
    is_last = bool(case.checks) and case.checks[-1].verdict in (NAN_REFUSED, NAN_LIKELY)
    return is_last and _ended_by_refusal(case)


def _ended_by_refusal(case: ProgramCase) -> bool:
    """A program may catch the error, and then fail for another reason."""
    recording = case.recording
    ends = [e for one in recording.processes for e in one.uncaught if not e.thread]
    is_running = any(one.call for one in recording.processes)
    return not is_running and any(
        refused_variable(end.type, end.message, _last_frame(recording.payload(end.stack)))
        for end in ends
    )


def _last_frame(stack: str) -> str:
    return stack.rpartition('  File "')[2]


def _examine(case: ProgramCase) -> Verdict:
    check = case.checks[-1]
    is_certain = check.verdict == NAN_REFUSED
    said = (
        "compiled code does what it was asked to"
        if is_certain
        else "compiled code probably does what it was asked to"
    )
    result = Verdict(
        v.NOT_A_BUG,
        stages.USER,
        f"The program has torch check for NaN (nan_asserts), and {check.text}; {said}.",
        "proven" if is_certain else "likely",
    )
    place = next((c.place for c in case.recording.compiles if c.id == check.compile), None)
    result.culprit.source = relative_place(place) if place else None
    result.add(check.text, f"call {check.call} of {check.compile}")
    result.add(
        "the NaN was there before this call: it was passed in, or eager computes it as well"
        if is_certain
        else "whether this is the NaN that was refused was not seen",
        "torch._inductor.config.nan_asserts, or TORCHINDUCTOR_NAN_ASSERTS=1",
    )
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
