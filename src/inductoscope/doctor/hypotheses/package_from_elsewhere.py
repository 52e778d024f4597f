"""A call of a package fails, and the program that it was made from is not here.

When it applies: The program failed or died while it called such a package, and no input is known to
be what the package does not accept.

What it runs: Nothing: there is no graph to compare with, and no run without the package.

What it concludes: Which package it is, and what to examine instead.

How sure: That it fails there is certain; why is unknown.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import last_lines


def _applies(case: ProgramCase) -> bool:
    return case.found is None and case.first.ending.exit_code != 0 and bool(_called_last(case))


def _called_last(case: ProgramCase) -> str:
    """The package that a process was in when it died, or whose call raised."""
    names = case.packages_from_elsewhere
    said = case.first.output[-4000:]
    raised = [
        check.compile
        for check in case.checks_that_are("error")
        # Otherwise the program has caught it, and failed for another reason.
        if check.compile in names and check.text.partition("\n")[0] in said
    ]
    died = [one.call for one in case.recording.processes if one.call in names]
    return next(iter([*died, *raised]), "")


def _examine(case: ProgramCase) -> Verdict:
    name, ending = _called_last(case), case.first.ending
    how = f"died of {signal_name(ending.signal)}" if ending.signal else "failed"
    result = Verdict(
        v.UNKNOWN,
        stages.RUNTIME,
        f"The program {how} in a call of {name}, which was made elsewhere. Why it "
        "fails shows in the program that makes the package: examine that one, or see what is in it "
        "and what it accepts with: inductoscope aoti MODEL.pt2",
    )
    raised = next((c.text for c in case.checks_that_are("error") if c.compile == name), "")
    raised = raised.partition("\n")[0]
    said = raised or "\n".join(last_lines(case.first.output, 3)) or "nothing"
    result.add(said[:1500], "what the call raised" if raised else "what the program printed last")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
