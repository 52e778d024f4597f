"""Compares the kept calls of a test with eager, once the test is over.

A call is made again on copies of its inputs, in eager and compiled, in the situation that it was
made in. It counts as wrong only if that is beyond rounding, judged against float64, and if it is so
each time. One that raised counts only if the test failed with that exception, and if compiled code
raises it each time and eager never. Whatever cannot be compared says why, and counts as nothing.
"""

from __future__ import annotations

import contextlib
import copy
import io
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from inductoscope.doctor.compare.bug_or_rounding import (
    UNINITIALISED,
    UNREPEATABLE,
    EagerComparison,
    judge,
)
from inductoscope.doctor.compare.case import Case
from inductoscope.doctor.compare.custom_operators import first_false_declaration
from inductoscope.doctor.compare.graphs import as_function
from inductoscope.doctor.compare.random_numbers import draws_random_numbers
from inductoscope.doctor.compare.values import needs_backward, run
from inductoscope.doctor.failure import NAN
from inductoscope.doctor.search.failure_signature import failure_of_comparison
from inductoscope.pytest_plugin.compile_errors import chain_of
from inductoscope.pytest_plugin.kept_calls import KeptSuiteCall, said_by
from inductoscope.pytest_plugin.quick_look import what_is_wrong
from inductoscope.pytest_plugin.results import (
    ERROR,
    NOT_CHECKED,
    RIGHT,
    UNSTEADY,
    WITHIN_ROUNDING,
    WRONG,
    CheckedCall,
    SuiteFinding,
)
from inductoscope.vocabulary.counting import count_of
from inductoscope.vocabulary.verdicts import CRASH, NOT_A_BUG, NOT_A_NUMBER, WRONG_RESULT

TORCH_NAMES = {
    "torch._dynamo.utils": ("counters",),
}

# Seconds after which no further call of the same test is compared.
_LONGEST = 60.0
_RANDOM = "it draws random numbers, and compiled code draws others than eager"


def check_calls(
    calls: Sequence[KeptSuiteCall], failure: BaseException | None
) -> tuple[list[CheckedCall], list[SuiteFinding]]:
    """Compare all calls that a test made; `failure` is what the test itself raised, if it did."""
    began = time.monotonic()
    checked: list[CheckedCall] = []
    findings: dict[str, SuiteFinding] = {}
    with _unnoticed():
        for call in calls:
            if time.monotonic() - began > _LONGEST:
                why = f"the checks of this test had already taken {_LONGEST:.0f} s"
                checked.append(_noted(call, NOT_CHECKED, why))
                continue
            said, finding = _checked(call, failure)
            checked.append(said)
            # The first wrong call of a graph says it all.
            if finding is not None:
                findings.setdefault(call.graph.name, finding)
    return checked, list(findings.values())


@contextlib.contextmanager
def _unnoticed() -> Iterator[None]:
    """What the checks print, warn of and count is not the suite's."""
    import torch._dynamo.utils as utils

    before = copy.deepcopy(dict(utils.counters))
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        # In place: the suite may hold one of them.
        for name, counter in list(utils.counters.items()):
            counter.clear()
            counter.update(before.get(name, {}))
            if name not in before:
                del utils.counters[name]


def _checked(
    call: KeptSuiteCall, failure: BaseException | None
) -> tuple[CheckedCall, SuiteFinding | None]:
    try:
        with call.situation.entered():
            return _compared(call, failure)
    except Exception as error:
        why = f"inductoscope itself failed: {said_by(error)}"
        return _noted(call, NOT_CHECKED, why), None


def _noted(call: KeptSuiteCall, verdict: str, text: str) -> CheckedCall:
    return CheckedCall(call.graph.name, call.graph.compile_id, call.number, verdict, text)


def _compared(
    call: KeptSuiteCall, failure: BaseException | None
) -> tuple[CheckedCall, SuiteFinding | None]:
    graph = call.graph
    spoilt = call.spoilt or _changed_since(call)
    if spoilt:
        return _noted(call, NOT_CHECKED, spoilt), None
    backward = graph.has_backward and needs_backward(call.inputs)
    case = Case(as_function(graph.module), call.inputs, backward)
    try:
        case.eager  # noqa: B018
    except Exception as error:
        return _noted(call, NOT_CHECKED, f"eager raises {said_by(error)}"), None
    if call.raised:
        return _after_error(call, failure)
    compiled: Any = graph.compiled
    try:
        comparison = judge(case, run(compiled, call.inputs, backward=backward))
        if not comparison.is_right:
            again = judge(case, run(compiled, call.inputs, backward=backward))
            if again.is_right:
                text = f"wrong in one of two calls: {comparison.wrong[0].text}"
                return _noted(call, UNSTEADY, text), None
    except Exception as error:
        why = f"called again after the test, it raised {said_by(error)}"
        return _noted(call, NOT_CHECKED, why), None
    if comparison.is_right:
        return replace(_when_right(call, comparison), with_gradients=backward), None
    if draws_random_numbers(as_function(graph.module), call.inputs):
        return _noted(call, NOT_CHECKED, _RANDOM), None
    return _when_wrong(call, comparison, backward)


def _changed_since(call: KeptSuiteCall) -> str:
    if call.raised or call.graph.versions() == call.versions:
        return ""
    return "the test later wrote to tensors that it holds"


def _when_right(call: KeptSuiteCall, comparison: EagerComparison) -> CheckedCall:
    if not comparison.explained:
        return _noted(call, RIGHT, count_of(comparison.values, "value"))
    texts = "; ".join(item.text for item in comparison.explained[:2])
    if comparison.reason in (UNINITIALISED, UNREPEATABLE):
        return _noted(call, UNSTEADY, f"{comparison.reason}: {texts}")
    return _noted(call, WITHIN_ROUNDING, texts)


def _after_error(
    call: KeptSuiteCall, failure: BaseException | None
) -> tuple[CheckedCall, SuiteFinding | None]:
    """A call that raised in the test, and that eager makes without an exception.

    A test that goes on after the exception wanted it, however the test ends. And what raised it
    may be gone: only if it is still there does eager's return say anything.
    """
    if failure is None or call.raised not in map(said_by, chain_of(failure)):
        return _noted(call, NOT_CHECKED, f"the test expects that it raises {call.raised}"), None
    if not _only_compiled_raises(call):
        why = f"it raised {call.raised} in the test, but not each time after the test"
        return _noted(call, NOT_CHECKED, why), None
    finding = SuiteFinding(
        CRASH,
        f"compiled code raised {call.raised}; eager does not",
        graph=call.graph.name,
        compile=call.graph.compile_id,
        known_by=[
            f"call {call.number} of graph {call.graph.compile_id} raised it in the test, and twice "
            "more after the test, on copies of its inputs; the same graph returned in eager, "
            "before these two calls and after them"
        ],
    )
    return _noted(call, ERROR, finding.summary), finding


def _only_compiled_raises(call: KeptSuiteCall) -> bool:
    """Twice in a row compiled, then in eager: something that takes turns shows, too."""
    compiled: Any = call.graph.compiled
    eager = as_function(call.graph.module)
    return (
        _raised_by(compiled, call) == call.raised
        and _raised_by(compiled, call) == call.raised
        and not _raised_by(eager, call)
    )


def _raised_by(function: Callable[..., Any], call: KeptSuiteCall) -> str:
    try:
        run(function, call.inputs, backward=False)
    except Exception as error:
        return said_by(error)
    return ""


def _when_wrong(
    call: KeptSuiteCall, comparison: EagerComparison, backward: bool
) -> tuple[CheckedCall, SuiteFinding | None]:
    failure = failure_of_comparison(comparison)
    assert failure is not None
    said = replace(_noted(call, WRONG, failure.text), with_gradients=backward)
    graph = call.graph
    finding = SuiteFinding(
        NOT_A_NUMBER if failure.kind == NAN else WRONG_RESULT,
        f"compiled code and eager differ: {failure.text}",
        graph=graph.name,
        compile=graph.compile_id,
        details=list(failure.texts[1:4]),
        known_by=[
            f"after the test, call {call.number} of graph {graph.compile_id} was made again on "
            "copies of its inputs: in eager, in float64, and twice compiled"
        ],
    )
    declared = first_false_declaration(as_function(graph.module), call.inputs)
    if declared is not None:
        finding.verdict, finding.stage, finding.op = NOT_A_BUG, "user", declared.operation
        finding.summary += (
            f". {declared.operation} does not do what it declares, which the compiler relies on"
        )
        finding.details.append(declared.text)
        finding.known_by.append("torch.library.opcheck failed on its actual arguments")
        return said, finding
    place = what_is_wrong(call, backward=backward)
    finding.stage, finding.kernel, finding.source = place.stage, place.kernel, place.source
    finding.ops = list(place.operations)
    finding.op = finding.ops[0] if len(finding.ops) == 1 else ""
    finding.details += [text for text in (place.text,) if text]
    finding.known_by += [how for how in (place.how,) if how]
    return said, finding
