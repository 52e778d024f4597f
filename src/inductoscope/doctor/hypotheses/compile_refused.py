"""A compile raised before a graph could be examined: Dynamo or AOTAutograd failed.

When it applies: An exception came out of a compile, and nothing was found.

What it runs: The program in eager and without the tool, unless it is compiled ahead of time.

What it concludes: Not Inductor, if Dynamo or AOTAutograd raised, otherwise a crash; not a compiler
bug, if the program fails in eager too; nothing, if it ends well without the tool.

How sure: Proven by the exception, and by those runs.
"""

from __future__ import annotations

import re

from inductoscope import verdicts as v
from inductoscope.analysis.rules import diagnose
from inductoscope.doctor.case import ProgramCase
from inductoscope.doctor.common_verdicts import fails_in_eager, only_under_the_tool
from inductoscope.doctor.hypotheses.hypothesis import Hypothesis
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.model.entities import CompileError
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.frames import frames_in, is_users

# What Dynamo says about an operator that is not torch's.
_FAKE_RAISED = re.compile(
    r"with fake tensors: call_function (?P<operator>(?!aten\.|prims\.|prim\.)\w+\.\w+\.\w+)\("
    r".*: got (?P<raised>\w+\(.*\))"
)
_BEFORE_INDUCTOR = {stages.DYNAMO: "Dynamo, not Inductor", stages.AOT: "AOTAutograd, not Inductor"}


def _applies(case: ProgramCase) -> bool:
    return case.found is None and bool(_errors(case))


def _errors(case: ProgramCase) -> list[CompileError]:
    return [e for c in case.recording.compiles for e in c.errors if not e.swallowed]


def _examine(case: ProgramCase) -> Verdict:
    error = _errors(case)[0]
    if case.runs.uses_packages:
        return _refused(case, error)  # There is no run without that compile.
    why = f"{error.type} before any backend ran; running the program without torch.compile"
    eager = case.runs.in_eager_once(why)
    if eager.failed:
        return fails_in_eager(case, eager)
    if case.first.failed and case.runs.without_tool_once().ended_well:
        return only_under_the_tool(error.message)
    return _refused(case, error)


def _refused(case: ProgramCase, error: CompileError) -> Verdict:
    finding = next((f for f in diagnose(case.recording) if f.rule == "compile_error"), None)
    kind = v.NOT_INDUCTOR if error.stage in _BEFORE_INDUCTOR else v.CRASH
    functions = [place.partition(" ")[0] for place in error.raised_in]
    source = _users_line(error.message) or error.source or (finding.source if finding else None)
    culprit = Culprit(function=functions[0] if functions else None, source=source)
    result = Verdict(kind, error.stage, _summary(error), "proven", culprit)
    fake = _FAKE_RAISED.search(error.message)
    if fake is not None and "no fake impl" not in fake["raised"]:
        result = _on_fake_implementation(fake, culprit)
    message = error.message.strip().splitlines()
    eager = "" if case.runs.uses_packages else "; the same code does not fail in eager"
    result.add("\n".join(message[:12]), f"the exception{eager}")
    for number, place in enumerate(dict.fromkeys(error.raised_in[:3])):
        result.add(f"called from {place}" if number else f"raised in {place}")
    if finding is not None:
        result.add(finding.advice)
    return result


def _on_fake_implementation(fake: re.Match[str], culprit: Culprit) -> Verdict:
    """An operator of the program raised where torch asks it for shapes and types only."""
    culprit.op = fake["operator"]
    summary = (
        f"The fake implementation of the program's operator {fake['operator']} raises "
        f"{fake['raised'][:200]}. Eager never calls it; torch.compile asks it for shapes and types."
    )
    return Verdict(v.NOT_A_BUG, stages.USER, summary, "proven", culprit)


def _summary(error: CompileError) -> str:
    message = error.message.strip().splitlines()
    who = _BEFORE_INDUCTOR.get(error.stage, f"Inductor, in stage {error.stage}")
    summary = f"{who}: {error.type}: {message[0] if message else ''}"
    if "fullgraph" in error.message or "Unsupported" in error.type:
        summary += " (with fullgraph=True Dynamo raises where it would otherwise break the graph)"
    if any("register_fake" in text for text in (error.message, *error.causes)):
        summary += " (a custom operator has no fake implementation: use register_fake)"
    return summary


def _users_line(message: str) -> str | None:
    """The last line of the program that Dynamo's message names."""
    _, _, user_code = message.partition("from user code:")
    own = [frame for frame in frames_in(user_code) if is_users(frame.file)]
    return str(own[-1]) if own else None


HYPOTHESIS = Hypothesis(_applies, _examine)
