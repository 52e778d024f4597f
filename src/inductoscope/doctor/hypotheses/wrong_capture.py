"""Dynamo captures something other than what a function computes.

When it applies: A compiled function gave a different result from its Python code, though its
graphs are right.

What it runs: The program with Dynamo alone, each graph in eager.

What it concludes: Not Inductor, if the function differs with Dynamo alone too, and does not differ
by itself. Otherwise nothing, or 'unknown' of a program that was ended by a limit.

How sure: Proven by comparing the function with two forks in eager that agree.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import verdict_at_limit
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.instructions import Instructions
from inductoscope.doctor.runs import functions_that_differ
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.fold import load
from inductoscope.torch_facts import stages


def _applies(case: ProgramCase) -> bool:
    return case.found is None and bool(case.functions_that_differ)


def _examine(case: ProgramCase) -> Verdict | None:
    seen = case.functions_that_differ[0]
    again = case.runs.again(
        Instructions(calls=0, backend="eager", investigate=False),
        f"{seen.function} differs though its graphs are right; running it with Dynamo "
        "alone, each graph in eager",
    )
    still = functions_that_differ(load(again.folder))
    if not still:
        return verdict_at_limit(case) if case.first.was_ended else None
    result = Verdict(
        v.NOT_INDUCTOR,
        stages.DYNAMO,
        f"Dynamo captures something other than what {still[0].function} computes: "
        f"{still[0].text}, with every graph run in eager.",
        "proven",
        Culprit(function=still[0].function, source=case.last_compiled),
    )
    for event, how in ((seen, "compiled"), (still[0], "with Dynamo alone")):
        text = f"{event.function}: {event.text}"
        result.add(text, f"{how}, compared with eager in a fork")
    return result


HYPOTHESIS = Hypothesis(_applies, _examine)
