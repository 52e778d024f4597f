"""The operation that a verdict names: what most of the evidence points at.

A kernel computes many operations, and the buffer that is wrong belongs to the last of them. So all
evidence votes: an operation that is wrong on its own, one whose lowering brings the failure about,
the operations of the smallest graph, and the node of the buffer.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inductoscope import verdicts as v
from inductoscope.doctor import failure as f
from inductoscope.doctor.failure import (
    ERROR,
    SIGNAL,
    SuppressingAxis,
    most_telling,
)
from inductoscope.doctor.finding import Found
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.torch_facts import stages
from inductoscope.torch_facts.stages import PLAIN
from inductoscope.wording import count_of

# What a run shows counts more than what a place in the graph suggests.
_SHOWN, _SMALLEST, _PLACE = 3.0, 2.0, 1.0
# With less, nothing but its place speaks for an operation.
_ENOUGH = 2.0


@dataclass(frozen=True)
class Vote:
    """One piece of evidence for an operation."""

    operation: str
    weight: float
    why: str


@dataclass(frozen=True)
class Headline:
    """The operation to name, as torch writes it, and what the evidence for it is."""

    operation: str = ""
    # The operation of the program that it is a part of, if it has another name.
    part_of: str = ""
    votes: tuple[Vote, ...] = ()
    # Others for which just as strong evidence speaks.
    rivals: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """The operation, and what it is a part of."""
        return [name for name in (self.operation, self.part_of) if name]


def headline_of(found: Found) -> Headline:
    """What the evidence says about a failure in a kernel; empty if it decides nothing."""
    if not found.location.kernel:
        return Headline()
    votes = votes_on(found)
    totals: dict[str, float] = {}
    for vote in votes:
        totals[short(vote.operation)] = totals.get(short(vote.operation), 0.0) + vote.weight
    best = max(totals.values(), default=0.0)
    if best < _ENOUGH:
        return Headline(votes=tuple(votes))
    winner = next(name for name, total in totals.items() if total == best)
    strong = [vote for vote in votes if vote.weight == _SHOWN and short(vote.operation) != winner]
    rivals = [vote.operation for vote in strong if short(vote.operation) not in _whole(found)]
    return Headline(
        _full_name(winner, found),
        _part_of(winner, found),
        tuple(vote for vote in votes if short(vote.operation) == winner),
        tuple(dict.fromkeys(rivals)),
    )


def votes_on(found: Found) -> list[Vote]:
    """All evidence about single operations."""
    location = found.location
    alone = [
        Vote(name, _SHOWN / len(location.wrong_alone), "it is wrong on its own")
        for name in location.wrong_alone
    ]
    lowered = [
        Vote(axis.application, _SHOWN, f"the failure begins with it ({axis.title})")
        for axis in found.suppressing_axes
        if axis.names_operations and axis.application and _may_be_to_blame(axis.application, found)
    ]
    smallest = [
        Vote(name, _SMALLEST / len(found.operations), "the smallest graph consists of it")
        for name in found.operations
    ]
    place = [Vote(location.operation, _PLACE, "the wrong buffer holds its result")]
    return [*alone, *lowered, *smallest, *(place if location.operation else [])]


def _may_be_to_blame(operation: str, found: Found) -> bool:
    """Whether an operation is in the kernel that goes wrong first.

    Without the lowering of one that only reads what that kernel made, it fails another way.
    """
    is_crash = found.failure.kind in (ERROR, SIGNAL)
    inside = {short(name) for name in found.location.names}
    return not is_crash or not inside or short(operation) in inside


def short(name: str) -> str:
    """The name of an operation without its namespace, its overload and the number of its node."""
    parts = name.split(".")
    return re.sub(r"_\d+$", "", parts[1] if len(parts) > 1 else parts[0])


def _whole(found: Found) -> set[str]:
    """Operations of the smallest graph that stand for all that the kernel computes."""
    return {short(name) for name in found.operations} if len(found.operations) == 1 else set()


def _full_name(winner: str, found: Found) -> str:
    known = (*found.location.wrong_alone, *found.location.names, *found.operations)
    return next((name for name in known if short(name) == winner and "." in name), winner)


def _part_of(winner: str, found: Found) -> str:
    """The one operation of the smallest graph, if it is called otherwise."""
    names: Sequence[str] = found.operations
    return names[0] if len(names) == 1 and short(names[0]) != winner else ""


# --- Turns what was found inside the program into a verdict ---------------------------------------


def verdict_on(found: Found) -> Verdict:
    """The verdict on a failure that was noticed inside the program."""
    if found.advice:
        return _on_the_machine(found)
    if found.backend:
        return _on_another_backend(found)
    kind = _kind(found)
    stage = _stage(found)
    if stage in stages.BEFORE_INDUCTOR:
        kind = v.NOT_INDUCTOR
    if stage == stages.USER:
        kind = v.NOT_A_BUG
    result = Verdict(kind, stage or stages.NO_STAGE, "", culprit=_culprit(found))
    result.confidence = _confidence(found, stage)
    result.partial = not found.is_complete
    result.summary = _summary(result, found)
    result.values = list((found.first_failure or found.failure).values)
    _add_evidence(result, found)
    return result


def _on_the_machine(found: Found) -> Verdict:
    """The machine is at fault, not the compiler: no culprit and nothing to report."""
    text = found.failure.text
    first = " ".join(text.split())[:300]
    result = Verdict(
        v.COMPILE_ERROR,
        found.failure.stage or stages.NO_STAGE,
        f"This machine cannot compile, which is not a bug in torch: {first} {found.advice}",
        "proven",
    )
    result.add(text[:1500], f"compile {found.compile}")
    return result


def _on_another_backend(found: Found) -> Verdict:
    """Another backend compiled the graph, so no cause was searched for."""
    text = found.failure.text
    stage = stages.AOT if found.backend.startswith("aot_eager") else stages.USER
    result = Verdict(
        v.NOT_INDUCTOR,
        stage,
        f"The program uses the backend {found.backend}, not Inductor, and that backend does not "
        f"match eager: {text.splitlines()[0][:300] if text else ''}",
        "proven",
        Culprit(
            function=found.backend,
            source=relative_place(found.sources[-1]) if found.sources else None,
        ),
    )
    result.partial = not found.is_complete
    result.add(text[:1500], f"compile {found.compile}, compared with eager")
    return result


def _kind(found: Found) -> str:
    kind = found.failure.kind
    if kind == f.ERROR:
        return v.COMPILE_ERROR if _stage(found) in stages.NATIVE_COMPILES else v.CRASH
    return {
        f.WRONG: v.WRONG_RESULT,
        f.NAN: v.NOT_A_NUMBER,
        f.SIGNAL: v.CRASH,
        f.HANG: v.HANG,
        f.SLOW: v.SLOW,
    }[kind]


def _stage(found: Found) -> str:
    stage = found.location.stage or found.failure.stage
    telling = _most_telling_axis(found)
    if stage == stages.INDUCTOR:  # Between its stages.
        before, suppressing = found.failure.after, {each.stage for each in found.suppressing_axes}
        if before and (before in suppressing or telling is None):
            return before  # What comes between it and the next stage refuses its result.
        return telling.stage if telling is not None else stages.LOWERING
    if not stage and telling is not None:
        return telling.stage
    if found.failure.kind == f.HANG and any(_CPP_BUILDER in name for name in found.functions):
        return stages.CPP_COMPILE  # Entered in the stage that needs what is compiled.
    return stage


_CPP_BUILDER = "(torch/_inductor/cpp_builder.py:"


def _most_telling_axis(found: Found) -> SuppressingAxis | None:
    return most_telling(found.suppressing_axes, graphs_are_right=found.location.graphs_are_right)


def _culprit(found: Found) -> Culprit:
    location, failure = found.location, found.failure
    is_compilers = failure.kind in (f.ERROR, f.HANG) and not f.device_error(failure.text)
    was_in = failure.function if is_compilers else ""
    pass_name = location.pass_name or _pass_of_error(found) or None
    if pass_name:
        own = location.own_pass.partition(" ")[0]
        every = dict.fromkeys([pass_name, *location.names, own])
        pass_name = ", ".join(name for name in every if name)
    place = "" if _is_one_of_many(found) else location.operation
    operation = ", ".join(headline_of(found).names) or place
    if (not operation and not _is_whole(found)) or pass_name:
        # If nothing could be reduced: the node that the compiler was processing.
        operation = ", ".join(found.operations[:6]) or operation or _node(found) or _called(found)
    return Culprit(
        op=operation or None,
        pass_=pass_name,
        kernel=_kernel_of_program(found) or location.kernel or None,
        function=location.function or was_in or None,
        config=_setting(found),
        source=relative_place(found.sources[-1]) if found.sources else None,
    )


def _is_one_of_many(found: Found) -> bool:
    """Whether a kernel of several operations is to blame that no one has cut down yet.

    Its wrong buffer belongs to the last of them, which need not be the wrong one.
    """
    is_of_many = bool(found.location.kernel) and len(set(found.location.names)) > 1
    return is_of_many and _is_whole(found)


def _is_whole(found: Found) -> bool:
    """Whether the program's own graph is all that is known to fail, so far or by request."""
    return found.reproduces and (not found.nodes or not (found.is_cut_down or found.is_complete))


def _kernel_of_program(found: Found) -> str:
    """The guilty kernel by its name in the program, unless something before it is to blame."""
    is_before = found.location.pass_name or _stage(found) in _BEFORE_KERNELS
    return "" if is_before else found.in_program.kernel


_BEFORE_KERNELS = (stages.USER, *stages.BEFORE_INDUCTOR, stages.DECOMPOSITION, *stages.PASSES)


def _setting(found: Found) -> str | None:
    """What to disable; preferably something of the stage that is blamed."""
    telling = _most_telling_axis(found)
    if found.location.stage == stages.INDUCTOR:
        stage = _stage(found)
        telling = next((each for each in found.suppressing_axes if each.stage == stage), telling)
    return None if telling is None else telling.title


def _called(found: Found) -> str:
    """What the program calls, if eager runs no single operation for it: a loop, a branch."""
    return ", ".join(name for name in found.calls[:6] if name != "getitem")


def _pass_of_error(found: Found) -> str:
    """The pass that raised, or whose result made something raise: on the stack, or suppressing."""
    if found.failure.kind != f.ERROR or not _stage(found).endswith("-pass"):
        return ""
    on_stack = [name for name in found.functions if "(torch/_inductor/fx_passes/" in name]
    named = [name.partition(" ")[0] for name in on_stack]
    telling = [name for name in named if name not in _AROUND_PASSES]
    patterns = [each.application for each in found.suppressing_axes if each.names_passes]
    return ", ".join(dict.fromkeys([*telling[:1], *patterns]))


# Functions that only call passes.
_AROUND_PASSES = (
    "<lambda>", "<listcomp>", "<genexpr>", "wrapper", "post_grad_passes", "joint_graph_passes",
    "_recursive_joint_graph_passes", "_recursive_post_grad_passes", "pre_grad_passes",
)  # fmt: skip


def _node(found: Found) -> str:
    """The node that the compiler was processing."""
    executing = re.search(r"While executing %\w+ : .*?target=([\w.]+)", found.failure.text)
    return found.failure.detail or (executing[1] if executing else "")


def _own_pass(found: Found) -> str:
    """A pass that is not torch's: its name and its line."""
    name, _, place = found.location.own_pass.rstrip(")").partition(" (")
    return f"{name} at {relative_place(place)}"


def relative_place(place: str) -> str:
    """A place in a file, relative to the current folder if it is below that."""
    path, _, line = place.rpartition(":")
    with contextlib.suppress(ValueError):
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    return place


def _confidence(found: Found, stage: str) -> v.Confidence:
    if not stage:
        return "unknown"
    if not found.reproduces:
        return "likely"
    if headline_of(found).rivals:
        return "likely"  # The evidence does not agree on the operation.
    if found.failure.kind in (f.WRONG, f.NAN):
        is_located = found.location.stage and found.location.how
        return "proven" if is_located else "likely"  # Otherwise inferred from what suppresses it.
    if found.location.stage == stages.INDUCTOR:
        return "likely"  # Inferred from the stage before it.
    if found.failure.kind == f.HANG and found.nodes > f.FEW_NODES:
        return "likely"  # It may be slow.
    return "proven"


# The only mistake in the program itself that this module reports.
_BROKEN_DECLARATION = "A custom operator of the program does not do what it declares"


def _summary(result: Verdict, found: Found) -> str:
    culprit = result.culprit
    at = f" at {culprit.source}" if culprit.source else ""
    who = ""
    if found.location.own_pass:
        who = f", because of the pass {_own_pass(found)}, which is not torch's"
    elif culprit.pass_:
        who = f", because of the pass {culprit.pass_.partition(',')[0]}"
    elif result.verdict == v.HANG and culprit.function:
        who = f", in {culprit.function}, which loops or blocks"
    elif culprit.op:
        names = headline_of(found).names or [culprit.op.partition(",")[0]]
        who = f", because of {' in '.join(names)}{own_part(found, *names)}"
    elif culprit.function:
        who = f", in {culprit.function}"
    stage = f" (stage {result.stage})" if result.stage != stages.NO_STAGE else ""
    text = (found.memory_fault or found.failure.text).strip().splitlines()
    is_own = result.verdict == v.NOT_A_BUG
    what = _BROKEN_DECLARATION if is_own else v.headline(result.verdict)
    size = f"at {found.other_size}: " if found.other_size else ""
    return f"{what}{at}{who}{stage}: {size}{text[0][:300] if text else ''}"


def own_part(found: Found, *operations: str) -> str:
    """Whose the lowering or decomposition of an operation is, if it is not torch's."""
    names = {short(operation) for operation in operations}
    part = next((part for part in found.replaced if short(part.operation) in names), None)
    if part is None:
        return ""
    name, _, place = part.function.rstrip(")").partition(" (")
    return f", whose {part.kind} is the program's own, {name} at {relative_place(place)}"


def add_replaced_parts(result: Verdict, found: Found) -> None:
    """Add the lowerings and decompositions in use that are not torch's."""
    for text in (*(part.text for part in found.replaced), found.not_held):
        if text:
            result.add(text, "torch's tables in the program's process")


def _add_evidence(result: Verdict, found: Found) -> None:
    failure, location = found.failure, found.location
    where = f"compile {found.compile}" + (f" in {found.process}" if found.process else "")
    for text in dict.fromkeys([failure.text[:1500], *failure.texts[:4]]):
        result.add(text, where)
    if found.other_size:
        text = f"it is wrong at {found.other_size}; at the program's own sizes it is right"
        result.add(text, "the package was called at other sizes that its export admits")
    if location.text != failure.text:
        result.add(location.text[:1500], location.how)
    kernel = _kernel_of_program(found)
    if kernel and found.in_program != location:
        text = f"in the program it is kernel {kernel}: {found.in_program.text}"
        result.add(text[:1500], found.in_program.how)
    _add_votes(result, found)
    if location.added:
        removed, added = ", ".join(location.removed) or "nothing", ", ".join(location.added)
        result.add(f"the pass removed {removed[:300]} and added {added}", location.stage)
    if location.own_pass:
        result.add(f"the pass is {_own_pass(found)}, which is not torch's code", location.stage)
    add_replaced_parts(result, found)
    shown = 12 if failure.kind == f.HANG else 4
    for name in found.functions[:shown]:
        first = "it was in" if failure.kind in (f.HANG, f.SIGNAL) else "raised in"
        result.add(f"{first} {name}" if name == found.functions[0] else f"called from {name}")
    for message in failure.messages[:1]:
        result.add(_complaint(message), "what the native compiler said")
    for text in found.device_evidence:
        result.add(text, "the smallest graph, in a process of its own")
    if failure.detail:
        result.add(f"while processing {failure.detail}", failure.stage)
    for each in found.suppressing_axes:
        only = f" (the one that matters: {each.application})" if each.application else ""
        result.add(f"the failure disappears without {each.title}{only}", "the smallest graph")
    if found.nodes:
        result.add(
            f"{found.nodes} of {found.nodes_before} graph nodes "
            f"{'is' if found.nodes == 1 else 'are'} enough to show it"
            + (f": {', '.join(found.calls[:12])}" if found.calls else "")
            + (f" (in eager {', '.join(found.operations[:8])})" if found.operations else ""),
            f"{count_of(found.candidates_tried, 'candidate')} tried",
        )
    if found.flow and found.shows_with_torch_compile:
        plain = PLAIN[found.flow]
        text = f"{plain} fails in the same way, so it is not peculiar to {found.flow}"
        result.add(text, "tried in a fork")
    elif found.is_right_with_torch_compile:
        plain = PLAIN[found.flow]
        text = f"the same graph is right with {plain}, so it is peculiar to {found.flow}"
        result.add(text, "tried in a fork")
    if not found.reproduces:
        instead = f": {found.alone}" if found.alone else ""
        result.add(f"the graph alone did not fail again, so it was not reduced{instead}")
    for note in found.notes[:2]:
        advice = f.why_no_trial(note)
        if advice:
            result.add(advice, "a fork of the program's copy was refused")
            break
        raised = re.findall(r"^[\w.]+(?:Error|Exception|Fails|Failure)\b.*", note, re.MULTILINE)
        result.add(raised[-1] if raised else note.strip()[-200:], "an error in inductoscope")


def _add_votes(result: Verdict, found: Found) -> None:
    """Why the operation in the headline is named, and what else could be."""
    headline = headline_of(found)
    if headline.operation and short(headline.operation) != short(found.location.operation):
        why = "; ".join(vote.why for vote in headline.votes)
        ends = found.location.operation
        last = f", though it ends with {ends}" if ends else ""
        result.add(f"{headline.operation} is to blame in the kernel{last}: {why}", "all evidence")
    if headline.rivals:
        others = ", ".join(headline.rivals)
        result.add(f"the evidence does not agree: it may as well be {others}", "all evidence")


def _complaint(message: str) -> str:
    lines = message.splitlines()
    for number, line in enumerate(lines):
        if "error:" in line:
            return "\n".join(lines[number : number + 4])
    return "\n".join(lines[:4])
