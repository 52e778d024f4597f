"""Judges a finding: derives the verdict, the stage and the culprit from its claims.

A kernel computes many operations, and the wrong buffer belongs to the last of them. So all evidence
votes for the operation to name: one that is wrong when compiled alone, one whose lowering causes
the failure, the operations of the smallest graph, and the node of the buffer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from inductoscope import verdicts as v
from inductoscope.doctor import failure as f
from inductoscope.doctor.failure import ERROR, SIGNAL, SuppressingAxis, most_telling
from inductoscope.doctor.finding import (
    PROGRAM,
    SMALLEST_GRAPH,
    WHOLE_GRAPH,
    FailureFinding,
    Flow,
    Noticed,
    Repro,
    SeenInMemory,
    Workaround,
)
from inductoscope.doctor.verdict import Culprit, FailingGraph, Headline, Verdict, Vote
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.messages import device_error, executed_operation

# Evidence from a run outweighs evidence from the place in the graph.
_SHOWN, _SMALLEST, _PLACE = 3.0, 2.0, 1.0
# Below this weight, an operation is supported by its place in the graph only.
_ENOUGH = 2.0


def headline_of(finding: FailureFinding) -> Headline:
    """Name the operation to blame in a failing kernel; empty if the evidence is inconclusive."""
    if not finding.location.kernel:
        return Headline()
    votes = votes_on(finding)
    totals: dict[str, float] = {}
    for vote in votes:
        totals[short(vote.operation)] = totals.get(short(vote.operation), 0.0) + vote.weight
    best = max(totals.values(), default=0.0)
    if best < _ENOUGH:
        return Headline(votes=tuple(votes))
    winner = next(name for name, total in totals.items() if total == best)
    strong = [vote for vote in votes if vote.weight == _SHOWN and short(vote.operation) != winner]
    rivals = [vote.operation for vote in strong if short(vote.operation) not in _whole(finding)]
    return Headline(
        _full_name(winner, finding),
        _part_of(winner, finding),
        tuple(vote for vote in votes if short(vote.operation) == winner),
        tuple(dict.fromkeys(rivals)),
    )


def votes_on(finding: FailureFinding) -> list[Vote]:
    location, operations = finding.location, finding.reduction.operations
    alone = [
        Vote(name, _SHOWN / len(location.wrong_alone), "it is wrong on its own")
        for name in location.wrong_alone
    ]
    lowered = [
        Vote(axis.application, _SHOWN, f"the failure begins with it ({axis.title})")
        for axis in finding.suppressing_axes
        if axis.names_operations
        and axis.application
        and _may_be_to_blame(axis.application, finding)
    ]
    smallest = [
        Vote(name, _SMALLEST / len(operations), "the smallest graph consists of it")
        for name in operations
    ]
    place = [Vote(location.operation, _PLACE, "the wrong buffer holds its result")]
    return [*alone, *lowered, *smallest, *(place if location.operation else [])]


def _may_be_to_blame(operation: str, finding: FailureFinding) -> bool:
    """Check whether an operation is in the first wrong kernel.

    Removing the lowering of a mere consumer of that kernel only changes the failure.
    """
    is_crash = finding.kind in (ERROR, SIGNAL)
    inside = {short(name) for name in finding.location.names}
    return not is_crash or not inside or short(operation) in inside


def short(name: str) -> str:
    """Return an operation's name without namespace, overload and number of the node."""
    parts = name.split(".")
    return re.sub(r"_\d+$", "", parts[1] if len(parts) > 1 else parts[0])


def _whole(finding: FailureFinding) -> set[str]:
    """Return the operation of the smallest graph if it stands for the whole kernel."""
    operations = finding.reduction.operations
    return {short(name) for name in operations} if len(operations) == 1 else set()


def _full_name(winner: str, finding: FailureFinding) -> str:
    location, left = finding.location, finding.reduction
    known = (*location.wrong_alone, *location.names, *left.operations)
    return next((name for name in known if short(name) == winner and "." in name), winner)


def _part_of(winner: str, finding: FailureFinding) -> str:
    """Return the only operation of the smallest graph, if its name differs from the winner's."""
    names: Sequence[str] = finding.reduction.operations
    return names[0] if len(names) == 1 and short(names[0]) != winner else ""


# --- the verdict -------------------------------------------------------------------------------


def verdict_on(finding: FailureFinding) -> Verdict:
    """Return the verdict on a failure that was found inside the program, without its texts."""
    if finding.advice:
        # The machine is at fault, not the compiler: no culprit and nothing to report.
        stage = finding.failure.stage or stages.NO_STAGE
        return Verdict(v.COMPILE_ERROR, stage, "", "proven", finding=finding)
    if finding.fact(Noticed).backend:
        return _on_another_backend(finding)
    headline = headline_of(finding)
    kind, stage = _kind(finding), _stage(finding)
    if stage in stages.BEFORE_INDUCTOR:
        kind = v.NOT_INDUCTOR
    if stage == stages.USER:
        kind = v.NOT_A_BUG
    confidence, repro = _confidence(finding, stage, headline), finding.latest(Repro)
    if confidence == "proven" and repro is not None and not repro.verified:
        confidence = "likely"  # The script proves less than the program shows.
    program = _in_program(finding)
    return Verdict(
        kind,
        stage or stages.NO_STAGE,
        "",
        confidence,
        _culprit(finding, headline),
        program=program,
        reduction=_in_reduction(finding),
        values=program.values,
        repro=repro,
        workaround=finding.latest(Workaround),
        partial=not finding.is_complete,
        finding=finding,
        headline=headline,
    )


def _in_program(finding: FailureFinding) -> FailingGraph:
    """Describe the failure in the program: where that only died or hung, values are a fork's.

    So are they on the inputs that the sentinel stored. Of a program that is wrong without values,
    only a part of a graph, or one in filled memory, may show some: they are not the program's.
    """
    seen = finding.in_program
    is_same_call = seen.kind not in (f.WRONG, f.NAN) or finding.fact(Noticed).is_kept_call
    values = list(seen.values or (_in_whole_graph(finding).values if is_same_call else ()))
    kernel = kernel_of_program(finding) or None
    return FailingGraph(seen.text, finding.reduction.of, values, kernel, finding.compile)


def _in_reduction(finding: FailureFinding) -> FailingGraph | None:
    """Describe the failure in the smallest graph; None before it was shown or located there."""
    seen, place = finding.every(f.Failure)[-1], finding.latest(f.Location, SMALLEST_GRAPH)
    is_known = place is not None or finding.latest(f.Failure, SMALLEST_GRAPH) is not None
    if not is_known or not finding.reduction.nodes or seen.kind == f.SLOW:
        return None  # A slow compile is timed at several sizes.
    text = finding.fact(SeenInMemory).fault or seen.text
    kernel = (place.kernel if place else "") or None  # It may tell no more than the whole graph.
    return FailingGraph(text, finding.reduction.nodes, list(seen.values), kernel)


def _on_another_backend(finding: FailureFinding) -> Verdict:
    """Return the verdict on a graph of another backend, for which no cause was searched."""
    backend = finding.fact(Noticed).backend
    stage = stages.AOT if backend.startswith("aot_eager") else stages.USER
    culprit = Culprit(function=backend, source=_source(finding))
    partial = not finding.is_complete
    return Verdict(v.NOT_INDUCTOR, stage, "", "proven", culprit, partial=partial, finding=finding)


def _kind(finding: FailureFinding) -> str:
    kind = finding.kind
    if kind == f.ERROR:
        return v.COMPILE_ERROR if _stage(finding) in stages.NATIVE_COMPILES else v.CRASH
    return {
        f.WRONG: v.WRONG_RESULT,
        f.NAN: v.NOT_A_NUMBER,
        f.LOST_CHECK: v.WRONG_RESULT,
        f.SIGNAL: v.CRASH,
        f.HANG: v.HANG,
        f.SLOW: v.SLOW,
    }[kind]


def _stage(finding: FailureFinding) -> str:
    stage = finding.location.stage or finding.failure.stage
    telling = _most_telling_axis(finding)
    if stage == stages.INDUCTOR:  # Between stages of Inductor.
        before = finding.failure.after
        suppressing = {each.stage for each in finding.suppressing_axes}
        if before and (before in suppressing or telling is None):
            return before  # The code after that stage rejects its result.
        return telling.stage if telling is not None else stages.LOWERING
    if not stage and telling is not None:
        return telling.stage
    functions = finding.failure.functions
    if finding.kind == f.HANG and any(_CPP_BUILDER in name for name in functions):
        return stages.CPP_COMPILE  # The stage that waits for the compiler was entered.
    return stage


_CPP_BUILDER = "(torch/_inductor/cpp_builder.py:"


def _most_telling_axis(finding: FailureFinding) -> SuppressingAxis | None:
    is_right = finding.location.graphs_are_right
    return most_telling(finding.suppressing_axes, graphs_are_right=is_right)


def _culprit(finding: FailureFinding, headline: Headline) -> Culprit:
    location, failure = finding.location, finding.failure
    is_compilers = failure.kind in (f.ERROR, f.HANG) and not device_error(failure.text)
    is_in_kernel = failure.kind == f.HANG and failure.stage == stages.RUNTIME
    seen = _in_whole_graph(finding) if is_in_kernel else failure
    was_in = seen.function if is_compilers else ""
    pass_name = location.pass_name or _pass_of_error(finding) or None
    if pass_name:
        own = location.own_pass.partition(" ")[0]
        patterns = _patterns_that_matter(finding) if pass_name == _ANY_PATTERNS else []
        every = dict.fromkeys([*patterns, pass_name, *location.names, own])
        pass_name = ", ".join(name for name in every if name)
    place = "" if _is_one_of_many(finding) else location.operation
    operation = ", ".join(headline.names) or place
    if (not operation and not _is_whole(finding)) or pass_name:
        # If nothing could be reduced: the node that the compiler was processing.
        left = ", ".join(finding.reduction.operations[:6])
        operation = left or operation or _node(finding) or _called(finding)
    return Culprit(
        op=operation or None,
        pass_=pass_name,
        kernel=kernel_of_program(finding) or None,
        function=location.function or was_in or None,
        config=_setting(finding),
        source=_source(finding),
    )


def _is_one_of_many(finding: FailureFinding) -> bool:
    """Check whether the culprit is a kernel of several operations that is not reduced yet.

    Its wrong buffer belongs to the last operation, which need not be the wrong one.
    """
    is_of_many = bool(finding.location.kernel) and len(set(finding.location.names)) > 1
    return is_of_many and _is_whole(finding)


def _is_whole(finding: FailureFinding) -> bool:
    """Check whether only the program's own graph is known to fail, so far or by request."""
    is_small = finding.reduction.is_cut_down or finding.is_complete
    return finding.reproduces and (not finding.reduction.nodes or not is_small)


def kernel_of_program(finding: FailureFinding) -> str:
    """Return the culprit kernel's name in the program, unless an earlier stage is to blame."""
    place = place_in_program(finding)
    is_before = finding.location.pass_name or _stage(finding) in _BEFORE_KERNELS
    return "" if is_before or place is None else place.kernel


def place_in_program(finding: FailureFinding) -> f.Location | None:
    """Return the place in the program's own graph; None if only a smaller graph's is known."""
    in_program = finding.latest(f.Location, PROGRAM)
    if in_program is not None:
        return in_program
    # With plain torch.compile, the graph of another flow has other kernels.
    is_plain = not finding.fact(Flow).name
    seen = _in_whole_graph(finding) if is_plain else finding.in_program
    fails, how = _kernel_that_fails(seen)
    is_guilty = _stage(finding) in _WHERE_KERNELS_FAIL and not finding.location.buffer
    if fails and is_guilty:
        return f.Location(kernel=fails, text=seen.text, how=how)
    whole = finding.latest(f.Location, WHOLE_GRAPH) if is_plain else None
    return whole if whole is not None or finding.reduction.is_smaller else finding.location


_WHERE_KERNELS_FAIL = (stages.TRITON_COMPILE, stages.RUNTIME)


def _in_whole_graph(finding: FailureFinding) -> f.Failure:
    """Return the failure of the whole graph in a fork; the program's if that was not seen."""
    return finding.latest(f.Failure, WHOLE_GRAPH) or finding.in_program


def _kernel_that_fails(failure: f.Failure) -> tuple[str, str]:
    """Return the kernel that a call ended in, or that Triton refused, and how it is known."""
    if failure.stage == stages.TRITON_COMPILE and failure.detail.startswith("triton_"):
        return failure.detail, "Triton refused it"
    ends = failure.kind in (f.SIGNAL, f.HANG) or device_error(failure.text)
    is_known = ends and failure.stage == stages.RUNTIME
    return (failure.function, "the last kernel launched") if is_known else ("", "")


_BEFORE_KERNELS = (stages.USER, *stages.BEFORE_INDUCTOR, stages.DECOMPOSITION, *stages.PASSES)


def _setting(finding: FailureFinding) -> str | None:
    """Return the setting to disable, preferably of the culprit stage."""
    telling = _most_telling_axis(finding)
    if finding.location.stage == stages.INDUCTOR:
        stage = _stage(finding)
        axes = finding.suppressing_axes
        telling = next((each for each in axes if each.stage == stage), telling)
    return None if telling is None else telling.title


def _called(finding: FailureFinding) -> str:
    """Return the program's calls, for graphs without a single operation: a loop, a branch."""
    return ", ".join(name for name in finding.reduction.calls[:6] if name != "getitem")


def _pass_of_error(finding: FailureFinding) -> str:
    """Return the pass that raised or caused an error: it is on the stack, or suppresses it."""
    if finding.kind != f.ERROR or not _stage(finding).endswith("-pass"):
        return ""
    on_stack = [name for name in finding.failure.functions if "(torch/_inductor/fx_passes/" in name]
    named = [name.partition(" ")[0] for name in on_stack]
    telling = [name for name in named if name not in _AROUND_PASSES]
    return ", ".join(dict.fromkeys([*telling[:1], *_patterns_that_matter(finding)]))


def _patterns_that_matter(finding: FailureFinding) -> list[str]:
    """Return the patterns without whose replacement the failure disappears."""
    return [each.application for each in finding.suppressing_axes if each.names_passes]


# torch's name for the application of patterns, whichever they are.
_ANY_PATTERNS = "pattern_matcher"

# Functions that only run passes.
_AROUND_PASSES = (
    "<lambda>", "<listcomp>", "<genexpr>", "wrapper", "post_grad_passes", "joint_graph_passes",
    "_recursive_joint_graph_passes", "_recursive_post_grad_passes", "pre_grad_passes",
)  # fmt: skip


def _node(finding: FailureFinding) -> str:
    """Return the node that the compiler was processing."""
    return finding.failure.detail or executed_operation(finding.failure.text)


def _source(finding: FailureFinding) -> str | None:
    sources = finding.reduction.sources
    return relative_place(sources[-1]) if sources else None


def relative_place(place: str) -> str:
    """Return a place in a file, relative to the current folder if it is inside."""
    path, _, line = place.rpartition(":")
    with contextlib.suppress(ValueError):
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    return place


def _confidence(finding: FailureFinding, stage: str, headline: Headline) -> v.Confidence:
    if not stage:
        return "unknown"
    if not finding.reproduces:
        return "likely"
    if headline.rivals:
        return "likely"  # The evidence disagrees on the operation.
    if finding.kind in (f.WRONG, f.NAN, f.LOST_CHECK):
        is_located = finding.location.stage and finding.location.how
        return "proven" if is_located else "likely"  # Otherwise inferred from suppressing axes.
    if finding.location.stage == stages.INDUCTOR:
        return "likely"  # Inferred from the stage before it.
    if finding.kind == f.HANG and finding.reduction.nodes > f.FEW_NODES:
        return "likely"  # It may be slow.
    return "proven"
