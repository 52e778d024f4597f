"""A package is called with something that it was not made for.

When it applies: Before a call, an input broke what the package demands: a type, a size, a range, a
stride, a device; or a constant was replaced by a tensor of another kind; and that call was wrong,
or raised, or killed the process, or cannot be compared.

What it runs: Nothing.

What it concludes: Not a bug in torch: which input breaks what, and how to have torch say so itself.
A constant that is a view is an exception: nothing forbids it, and torch copies the wrong memory.

How sure: Proven: the demand is in the package's own code, the input was there. Of a view, proven if
the same call was right with copies of the constants; likely if the process died later on.
"""

from __future__ import annotations

from inductoscope import verdicts as v
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.finding_verdict import relative_place
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Verdict
from inductoscope.model.entities import Check
from inductoscope.packages.constants import is_about_view, overflows
from inductoscope.recording.events import (
    OUTSIDE,
    REJECTED,
    RIGHT_WITH_COPIES,
    WRONG_OUTSIDE,
)
from inductoscope.recording.layout import signal_name
from inductoscope.torch_facts import stages

_TO_SEE_IT = (
    "with AOTI_RUNTIME_CHECK_INPUTS=1 in the environment torch raises an error instead; to accept "
    "such an input, export the program with it as the example, or with wider dynamic_shapes"
)

_CONSTANT = "constant "
_OF_CONSTANTS = (
    "give load_constants a tensor with memory of its own and the device, type, shape and strides "
    "of the constant, such as torch.empty_like(constant).copy_(value)"
)


def _applies(case: ProgramCase) -> bool:
    return case.found is None and _harmful(case) is not None


def _harmful(case: ProgramCase) -> Check | None:
    """The first call with such an input that is known to have gone wrong, or cannot be trusted."""
    found = (check for check in case.checks_that_are(OUTSIDE) if _what_came_of(case, check))
    return next(found, None)


def _what_came_of(case: ProgramCase, before: Check) -> str:
    """What came of a call; empty if it is known to be right, or if it is not known."""
    same = _same_call(case, before)
    wrong = next((c.text for c in same if c.verdict in (WRONG_OUTSIDE, "error")), "")
    if wrong:
        return wrong
    rejected = next((c.text for c in same if c.verdict == REJECTED), "")
    if rejected:
        return "" if case.ends_well else f"{rejected}, and the program then {_how(case)}"
    if any(process.call == before.compile for process in case.recording.processes):
        return f"the program then {_how(case)}" if case.first.ending.exit_code else ""
    if overflows(before.text) and case.first.ending.signal:
        return f"the program then {_how(case)}"  # Memory that is overwritten shows later.
    is_foreign = before.text.startswith(_CONSTANT) and any(c.verdict == "skipped" for c in same)
    is_unknown = is_foreign or before.compile in case.packages_from_elsewhere
    if is_unknown and case.first.ending.exit_code == 0:
        return "the program went on with a result that cannot be trusted"
    return f"the program then {_how(case)}" if is_foreign else ""


def _examine(case: ProgramCase) -> Verdict | None:
    before = _harmful(case)
    if before is None:
        return None
    broken, _, place = before.text.partition(" (called at ")
    result = _of_view(case, before, broken) or Verdict(
        v.NOT_A_BUG,
        stages.USER,
        f"The package is called with something that it was not made for: {broken}.",
        "proven",
    )
    result.culprit.source = relative_place(place.rstrip(")")) if place else None
    is_rejected = any(check.verdict == REJECTED for check in _same_call(case, before))
    checks = "and torch rejects it" if is_rejected else "which does not check it by default"
    result.add(broken, f"the package's own code, {checks}")
    result.add(_what_came_of(case, before), f"call {before.call} of {before.compile}")
    result.add(_OF_CONSTANTS if broken.startswith(_CONSTANT) else _TO_SEE_IT)
    return result


def _of_view(case: ProgramCase, before: Check, broken: str) -> Verdict | None:
    """Tensors that are as they have to be, but share a larger memory: torch takes them wrongly."""
    said = {check.verdict for check in _same_call(case, before)}
    is_wrong, dies = WRONG_OUTSIDE in said, bool(case.first.ending.signal)
    is_view = all(is_about_view(text) for text in broken.split("; constant "))
    if not is_view or not (is_wrong or dies):
        return None
    dies_there = any(process.call == before.compile for process in case.recording.processes)
    is_proven = RIGHT_WITH_COPIES in said and (is_wrong or dies_there)
    verdict = v.WRONG_RESULT if is_wrong else v.CRASH
    why = f"because load_constants of torch takes a view wrongly: {broken}"
    summary = f"{v.headline(verdict)}, {why}."
    result = Verdict(verdict, stages.RUNTIME, summary, "proven" if is_proven else "likely")
    if is_proven:
        result.add(
            "with value.clone() in place of each of these constants, the same call is right",
            "the package was given copies and called again, in a fork",
        )
    return result


def _same_call(case: ProgramCase, before: Check) -> list[Check]:
    return [c for c in case.checks if (c.compile, c.call) == (before.compile, before.call)]


def _how(case: ProgramCase) -> str:
    ending = case.first.ending
    if ending.signal:
        return f"died of {signal_name(ending.signal)}"
    return f"ended with exit code {ending.exit_code}"


HYPOTHESIS = Hypothesis(_applies, _examine)
