"""Turns what was found inside the program into a verdict."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from inductoscope.doctor import verdict as v
from inductoscope.doctor.handover import Found
from inductoscope.doctor.search import failure as f
from inductoscope.doctor.suppressing_axis import SuppressingAxis, most_telling
from inductoscope.doctor.verdict import Culprit, Verdict
from inductoscope.vocabulary import stages


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
    _add_evidence(result, found)
    return result


def _on_the_machine(found: Found) -> Verdict:
    """Nothing is wrong with the compiler, so that there is no culprit and nothing to report."""
    text = str(found.failure.get("text", ""))
    first = " ".join(text.split())[:300]
    result = Verdict(
        v.COMPILE_ERROR,
        str(found.failure.get("stage") or stages.NO_STAGE),
        f"This machine cannot compile, which is no bug of torch: {first} {found.advice}",
        "proven",
    )
    result.add(text[:1500], f"compile {found.compile}")
    return result


def _on_another_backend(found: Found) -> Verdict:
    """What compiled the graph is none of Inductor's business; nothing was searched for."""
    text = str(found.failure.get("text", ""))
    stage = stages.AOT if found.backend.startswith("aot_eager") else stages.USER
    result = Verdict(
        v.NOT_INDUCTOR,
        stage,
        f"The program compiles with the backend {found.backend}, not with Inductor, and that one "
        f"does not do what eager does: {text.splitlines()[0][:300] if text else ''}",
        "proven",
        Culprit(
            function=found.backend, source=_relative(found.sources[-1]) if found.sources else None
        ),
    )
    result.partial = not found.is_complete
    result.add(text[:1500], f"compile {found.compile}, compared with eager")
    return result


def _kind(found: Found) -> str:
    kind = str(found.failure.get("kind"))
    if kind == f.ERROR:
        return v.COMPILE_ERROR if _stage(found) in stages.NATIVE_COMPILES else v.CRASH
    return {
        f.WRONG: v.WRONG_RESULT,
        f.NAN: v.NOT_A_NUMBER,
        f.SIGNAL: v.CRASH,
        f.HANG: v.HANG,
    }[kind]


def _stage(found: Found) -> str:
    stage = str(found.location.get("stage") or found.failure.get("stage") or "")
    cure = _telling_cure(found)
    if stage == stages.INDUCTOR:  # Between its stages.
        left, cured = _left_by(found), {axis.stage for axis in _suppressing_axes(found)}
        if left and (left in cured or cure is None):
            return left
        return cure.stage if cure is not None else stages.LOWERING
    if not stage and cure is not None:
        return cure.stage
    return stage


def _left_by(found: Found) -> str:
    """The stage whose result is refused by what comes between it and the next."""
    return str(found.failure.get("more", {}).get("after") or "")


def _telling_cure(found: Found) -> SuppressingAxis | None:
    return most_telling(
        _suppressing_axes(found),
        graphs_are_right=bool(found.location.get("graphs_are_right")),
    )


def _suppressing_axes(found: Found) -> list[SuppressingAxis]:
    return [SuppressingAxis(**data) for data in found.cures]


def _culprit(found: Found) -> Culprit:
    location = found.location
    names = [str(name) for name in location.get("names", ())]
    kind = found.failure.get("kind")
    was_in = found.failure.get("function") if kind in (f.ERROR, f.HANG) else ""
    function = str(location.get("function") or was_in or "") or None
    cure = _telling_cure(found)
    pass_name = str(location.get("pass_name") or "") or _pass_of_error(found) or None
    if pass_name and names:
        pass_name = ", ".join(dict.fromkeys([pass_name, *names]))
    operation = str(location.get("operation") or "")
    if not operation or pass_name:
        # Where nothing could be cut down, the node that the compiler was at.
        operation = ", ".join(found.operations[:6]) or operation or _node(found) or _called(found)
    return Culprit(
        op=operation or None,
        pass_=pass_name,
        kernel=str(location.get("kernel") or "") or None,
        function=function,
        config=_setting(found, cure),
        source=_relative(found.sources[-1]) if found.sources else None,
    )


def _setting(found: Found, telling: SuppressingAxis | None) -> str | None:
    """What to switch off: something of the stage, where that is told by what came before it."""
    if found.location.get("stage") == stages.INDUCTOR:
        stage = _stage(found)
        telling = next((axis for axis in _suppressing_axes(found) if axis.stage == stage), telling)
    return None if telling is None else telling.title


def _called(found: Found) -> str:
    """What the program calls, where eager runs no operation of its own for it: a loop, a branch."""
    return ", ".join(name for name in found.calls[:6] if name != "getitem")


def _pass_of_error(found: Found) -> str:
    """The pass that raised, or over whose result something raised: on the stack, or a cure."""
    if found.failure.get("kind") != f.ERROR or not _stage(found).endswith("-pass"):
        return ""
    on_stack = [name for name in found.functions if "(torch/_inductor/fx_passes/" in name]
    named = [name.partition(" ")[0] for name in on_stack]
    telling = [name for name in named if name not in _AROUND_PASSES]
    applied = [axis.application for axis in _suppressing_axes(found) if axis.names_passes]
    return ", ".join(dict.fromkeys([*telling[:1], *applied]))


# Functions that only call passes.
_AROUND_PASSES = (
    "<lambda>", "<listcomp>", "<genexpr>", "wrapper", "post_grad_passes", "joint_graph_passes",
    "_recursive_joint_graph_passes", "_recursive_post_grad_passes", "pre_grad_passes",
)  # fmt: skip


def _node(found: Found) -> str:
    """The node that the compiler was at."""
    executing = re.search(
        r"While executing %\w+ : .*?target=([\w.]+)", str(found.failure.get("text"))
    )
    return str(found.failure.get("detail") or (executing[1] if executing else ""))


def _relative(place: str) -> str:
    """A place in a file below the current folder, seen from there."""
    path, _, line = place.rpartition(":")
    with contextlib.suppress(ValueError):
        return f"{Path(path).relative_to(Path.cwd())}:{line}"
    return place


def _confidence(found: Found, stage: str) -> str:
    if not stage:
        return "unknown"
    if not found.reproduces:
        return "likely"
    if found.failure.get("kind") in (f.WRONG, f.NAN):
        is_located = found.location.get("stage") and found.location.get("how")
        return "proven" if is_located else "likely"  # Told by what makes it go away, otherwise.
    if found.location.get("stage") == stages.INDUCTOR:
        return "likely"  # Told by what came before it.
    if found.failure.get("kind") == f.HANG and found.nodes > f.FEW_NODES:
        return "likely"  # It may be slow.
    return "proven"


_KIND_TEXT = {
    v.WRONG_RESULT: "The compiled program gives a wrong result",
    v.NOT_A_NUMBER: "The compiled program gives NaN or Inf where eager is finite",
    v.CRASH: "The compiler or a kernel that it made breaks down",
    v.COMPILE_ERROR: "The code that Inductor generated is refused by the native compiler",
    v.HANG: "The compile does not end",
    v.NOT_INDUCTOR: "Something goes wrong before Inductor is reached",
    v.NOT_A_BUG: "An operator of the program's own does not do what it declares",
}


def _summary(result: Verdict, found: Found) -> str:
    culprit = result.culprit
    at = f" at {culprit.source}" if culprit.source else ""
    who = ""
    if culprit.pass_:
        who = f", because of the pass {culprit.pass_.partition(',')[0]}"
    elif result.verdict == v.HANG and culprit.function:
        who = f", in {culprit.function}, which goes round or waits"
    elif culprit.op:
        who = f", because of {culprit.op.partition(',')[0]}"
    elif culprit.function:
        who = f", in {culprit.function}"
    stage = f" (stage {result.stage})" if result.stage != stages.NO_STAGE else ""
    text = str(found.failure.get("text", "")).strip().splitlines()
    return f"{_KIND_TEXT[result.verdict]}{at}{who}{stage}: {text[0][:300] if text else ''}"


def _add_evidence(result: Verdict, found: Found) -> None:
    failure, location = found.failure, found.location
    where = f"compile {found.compile}" + (f" in {found.process}" if found.process else "")
    others = (failure.get("more") or {}).get("texts", [])[:4]
    for text in dict.fromkeys([str(failure.get("text", ""))[:1500], *map(str, others)]):
        result.add(text, where)
    if location.get("text") and location.get("text") != failure.get("text"):
        result.add(str(location["text"])[:1500], str(location.get("how") or ""))
    if location.get("added"):
        removed = str(location.get("operation") or "nothing")
        added = ", ".join(str(name) for name in location["added"])
        result.add(f"the pass took out {removed} and put in {added}", str(location.get("stage")))
    shown = 12 if failure.get("kind") == f.HANG else 4
    for name in found.functions[:shown]:
        first = "it was in" if failure.get("kind") in (f.HANG, f.SIGNAL) else "raised in"
        result.add(f"{first} {name}" if name == found.functions[0] else f"called from {name}")
    for message in (failure.get("more") or {}).get("messages", [])[:1]:
        result.add(_complaint(str(message)), "what the native compiler said")
    if failure.get("detail"):
        result.add(f"while at {failure['detail']}", str(failure.get("stage", "")))
    for axis in _suppressing_axes(found):
        only = f" (the one that matters: {axis.application})" if axis.application else ""
        result.add(f"the failure is gone without {axis.title}{only}", "the smallest graph")
    if found.nodes:
        result.add(
            f"{found.nodes} of {found.nodes_before} graph nodes are enough to show it"
            + (f": {', '.join(found.calls[:12])}" if found.calls else "")
            + (f" (in eager {', '.join(found.operations[:8])})" if found.operations else ""),
            f"{found.candidates_tried} candidates tried",
        )
    if not found.reproduces:
        result.add("the failure did not show again in the graph alone; nothing was narrowed")
    for note in found.notes[:2]:
        raised = re.findall(r"^[\w.]+(?:Error|Exception|Fails|Failure)\b.*", note, re.MULTILINE)
        result.add(raised[-1] if raised else note.strip()[-200:], "the tool's own mistake")


def _complaint(message: str) -> str:
    lines = message.splitlines()
    for number, line in enumerate(lines):
        if "error:" in line:
            return "\n".join(lines[number : number + 4])
    return "\n".join(lines[:4])
